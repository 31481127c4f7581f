"""The front door: what the packages export, what importing costs, what a missing one says."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import guideloom

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("format", "write", "read", "torch")
PUBLIC = [
    "guideloom",
    "guideloom.io",
    "guideloom.shuffle",
    "guideloom.types",
    "guideloom_format",
    "guideloom_read",
    "guideloom_read.io",
    "guideloom_torch",
    "guideloom_write",
]
HEAVY = ["torch", "torchdata", "multiprocess", "multiprocessing", "jax", "obstore", "ray", "fsspec"]


def run(program: str) -> str:
    """What a program prints in a fresh process, with warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def pyproject(package: str) -> dict[str, Any]:
    folder = ROOT / "packages" / f"guideloom-{package}" if package else ROOT
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


# Names


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_sorted_and_importable(name: str) -> None:
    module = importlib.import_module(name)
    names = module.__all__
    assert list(names) == sorted(set(names))
    for public in names:
        assert getattr(module, public) is not None
    assert module.__doc__


@pytest.mark.parametrize("name", PUBLIC)
def test_star_import_gives_all(name: str) -> None:
    names: dict[str, object] = {}
    exec(f"from {name} import *", names)
    del names["__builtins__"]
    assert sorted(names) == sorted(importlib.import_module(name).__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_imported_in_public_modules_is_in_all(name: str) -> None:
    """No public name beside `__all__`: neither a helper nor an import that was left."""
    module = importlib.import_module(name)
    beside = {
        public
        for public, value in vars(module).items()
        if not public.startswith("_") and not isinstance(value, ModuleType)
    }
    beside -= {"annotations", "TYPE_CHECKING", "Any", "require"}
    assert beside <= set(module.__all__)


@pytest.mark.parametrize("name", ["guideloom", "guideloom.io"])
def test_dir_shows_all(name: str) -> None:
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__)


def test_the_stub_agrees_with_the_package() -> None:
    path = Path(guideloom.__file__).with_suffix(".pyi")
    imported: set[str] = set()
    listed: list[str] = []
    for node in tree_of(path).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name
                imported.add(alias.name)
                found = getattr(importlib.import_module(node.module or ""), alias.name, None)
                assert found is getattr(guideloom, alias.name), alias.name
        elif isinstance(node, ast.Assign):
            listed = ast.literal_eval(node.value)
    assert listed == list(guideloom.__all__)
    assert imported == set(listed)


def test_every_error_and_every_module_is_at_the_front_door() -> None:
    errors = set(importlib.import_module("guideloom_format").__all__)
    errors = {name for name in errors if name.endswith("Error")}
    assert errors <= set(guideloom.__all__)
    assert {"io", "shuffle", "types"} <= set(guideloom.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    for name in ("guideloom", "guideloom.io"):
        module = importlib.import_module(name)
        with pytest.raises(AttributeError, match=rf"^module '{name}' has no attribute 'nothing'$"):
            _ = module.nothing
        with pytest.raises(ImportError, match="cannot import name 'nothing'"):
            exec(f"from {name} import nothing")


@pytest.mark.parametrize("name", [name for name in guideloom.__all__ if name[0].isupper()])
def test_classes_are_the_same_through_every_door(name: str) -> None:
    value = getattr(guideloom, name)
    assert pickle.loads(pickle.dumps(value)) is value


# What importing costs


@pytest.mark.parametrize(
    "modules",
    [
        "guideloom, guideloom_format, guideloom_write, guideloom_read",
        "guideloom.io, guideloom.shuffle, guideloom.types, guideloom_read.io",
    ],
)
def test_importing_is_free(modules: str) -> None:
    """No heavy package, no thread, no process, no environment read, no file opened for writing."""
    printed = run(
        f"""
import os, sys, threading, numpy, google_crc32c
events = []
def watch(event, args):
    if event in ("subprocess.Popen", "os.fork", "socket.connect", "os.mkdir", "os.putenv"):
        events.append(event)
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        if not str(args[0]).rstrip("0123456789").endswith(".pyc."):
            events.append(f"open {{args[0]}}")
sys.addaudithook(watch)
class Environment(dict):
    def __getattribute__(self, name):
        events.append(f"os.environ.{{name}}")
        return dict.__getattribute__(self, name)
    def __getitem__(self, name):
        events.append(f"os.environ[{{name}}]")
        return dict.__getitem__(self, name)
os.environ = Environment(os.environ)
descriptors = sorted(os.listdir("/proc/self/fd"))
import {modules}
print([name for name in {HEAVY} if name in sys.modules])
print(threading.active_count())
print(events)
print(sorted(os.listdir("/proc/self/fd")) == descriptors)
"""
    )
    assert printed == "[]\n1\n[]\nTrue\n"


def test_heavy_packages_come_with_the_loader_only() -> None:
    """The check above can fail: the loader does import torch."""
    printed = run(
        "import sys, guideloom; guideloom.StatefulDataLoader; print('torch' in sys.modules)"
    )
    assert printed == "True\n"


# What is missing

BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""
CATCH = """
try:
    {statement}
except ImportError as error:
    from guideloom import GuideLoomError, MissingPackageError
    assert type(error) is MissingPackageError, type(error)
    assert isinstance(error, GuideLoomError)
    print(error)
else:
    print("no error")
"""


CLONE = {
    "guideloom-write": "./packages/guideloom-format ./packages/guideloom-write",
    "guideloom-read": "./packages/guideloom-format ./packages/guideloom-read",
    "guideloom-torch": (
        "./packages/guideloom-format ./packages/guideloom-read ./packages/guideloom-torch"
    ),
}


def missing(package: str, wanted: str) -> str:
    return (
        f"{wanted} needs the package {package}, which is not installed. "
        f"Install it with: pip install {package} (in a clone of the repository: pip install "
        f"{CLONE[package]})\n"
    )


@pytest.mark.parametrize(
    "module, statement, wanted",
    [
        ("guideloom_read", "from guideloom import StreamDataset", "guideloom.StreamDataset"),
        ("guideloom_read", "import guideloom; guideloom.StreamDataset", "guideloom.StreamDataset"),
        ("guideloom_read", "from guideloom.io import MmapIO", "guideloom.io.MmapIO"),
        ("guideloom_read", "from guideloom.io import PosixPreadIO", "guideloom.io.PosixPreadIO"),
        ("guideloom_read", "import guideloom; guideloom.io.SeekIO", "guideloom.io.SeekIO"),
        ("guideloom_torch", "from guideloom import StatefulDataLoader", "guideloom.StatefulData"),
    ],
)
def test_a_missing_package_is_named_with_its_command(
    module: str, statement: str, wanted: str
) -> None:
    package = module.replace("_", "-")
    program = BLOCKED.format(blocked=[module]) + CATCH.format(statement=statement)
    if wanted == "guideloom.StatefulData":
        wanted = "guideloom.StatefulDataLoader"
    assert run(program) == missing(package, wanted)


STORAGE = """
import numpy as np
from guideloom import DataError, EpochPlan, StreamNumpyFormat, StreamStorage
from guideloom.shuffle import FeistelShuffler
from guideloom.types import IOReader, StreamStorageFormat
import guideloom.io
storage = StreamStorage("/tmp/nowhere", StreamNumpyFormat([("tokens", "<u2")]))
assert FeistelShuffler.from_seed(10, 0).shuffle(0) == 0
print(storage)
"""


@pytest.mark.parametrize(
    "blocked, call",
    [("guideloom_read", "sync_reader"), ("guideloom_write", "sync_writer")],
)
def test_a_machine_with_one_half_describes_datasets_and_says_what_is_missing(
    blocked: str, call: str
) -> None:
    program = BLOCKED.format(blocked=[blocked, "guideloom_torch", "torch"]) + STORAGE
    program += CATCH.format(statement=f"storage.{call}()")
    printed = run(program)
    shown, error = printed.split("\n", 1)
    assert shown == ("StreamStorage('/tmp/nowhere', StreamNumpyFormat(dtype([('tokens', '<u2')])))")
    assert error == missing(blocked.replace("_", "-"), f"{call}()")


def test_without_anything_but_the_format_every_description_works() -> None:
    blocked = ["guideloom_read", "guideloom_write", "guideloom_torch", "torch"]
    assert run(BLOCKED.format(blocked=blocked) + STORAGE).startswith("StreamStorage(")


@pytest.mark.parametrize("name", ["guideloom", "guideloom.io"])
def test_tools_that_look_around_are_not_stopped(name: str) -> None:
    """dir(), help() and hasattr() for a name that no package has."""
    blocked = ["guideloom_read", "guideloom_write", "guideloom_torch", "torch"]
    printed = run(
        BLOCKED.format(blocked=blocked)
        + f"import {name}, sys; m = sys.modules[{name!r}]; print(len(dir(m)) > 2, hasattr(m, 'x'))"
    )
    assert printed == "True False\n"


def test_a_broken_package_is_not_called_missing() -> None:
    """guideloom-torch is there and torch is not: the error names torch."""
    printed = run(
        BLOCKED.format(blocked=["torch"])
        + """
import guideloom
try:
    guideloom.StatefulDataLoader
except ModuleNotFoundError as error:
    print(error.name)
"""
    )
    assert printed == "torch\n"


# Versions


def test_all_packages_have_one_version_and_say_so() -> None:
    versions = {package: pyproject(package)["project"]["version"] for package in ("", *PACKAGES)}
    assert len(set(versions.values())) == 1, versions
    (version,) = set(versions.values())
    for name in ("guideloom", *(f"guideloom_{package}" for package in PACKAGES)):
        assert importlib.import_module(name).__version__ == version, name


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_packages_pin_each_other_exactly(package: str) -> None:
    project = pyproject(package)["project"]
    required = list(project.get("dependencies", []))
    for extra in project.get("optional-dependencies", {}).values():
        required += extra
    ours = {re.sub(r"\[.*\]", "", text) for text in required if re.match(r"guideloom-", text)}
    expected = {
        "": {"write", "read", "torch"},
        "format": set(),
        "write": {"format"},
        "read": {"format"},
        "torch": {"read"},
    }[package]
    assert ours == {f"guideloom-{other}=={project['version']}" for other in expected}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_need_the_same_python_and_are_typed(package: str) -> None:
    assert pyproject(package)["project"]["requires-python"] == ">=3.11"
    folders = [
        folder
        for folder in (ROOT / "packages" / f"guideloom-{package}" / "src").iterdir()
        if (folder / "__init__.py").exists()
    ]
    assert folders
    for folder in folders:
        assert (folder / "py.typed").exists(), folder.name
