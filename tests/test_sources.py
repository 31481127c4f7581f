"""The sources of all packages, read: who imports whom, and which calls none of them contains."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("format", "write", "read", "torch")
SOURCES = sorted(
    path
    for package in PACKAGES
    for pattern in ("*.py", "*.pyi", "*.pyx")
    for path in (ROOT / "packages" / f"guideloom-{package}" / "src").rglob(pattern)
)
MODULES = [path for path in SOURCES if path.suffix != ".pyx"]  # those that ast can parse


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a source imports, also inside functions and for type checkers."""
    if path.suffix == ".pyx":
        for match in re.finditer(
            r"^\s*(?:from|c?import)\s+([\w.]+)", path.read_text(), re.MULTILINE
        ):
            yield match[1]
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: a relative import"
            yield node.module or ""


def test_there_are_sources_to_read() -> None:
    assert len(SOURCES) > 40
    assert sum(path.suffix == ".pyx" for path in SOURCES) >= 3


ALLOWED = {
    "guideloom": {"guideloom", "guideloom_format"},
    "guideloom_format": {"guideloom_format"},
    "guideloom_read": {"guideloom_read", "guideloom_format"},
    "guideloom_write": {"guideloom_write", "guideloom_format"},
    "guideloom_torch": {"guideloom_torch", "guideloom_read", "guideloom_format"},
}
FOR_TYPES_ONLY = {
    ("guideloom", "__init__.pyi"): {"guideloom_read", "guideloom_torch", "guideloom_write"},
    ("guideloom", "io.py"): {"guideloom_read"},
    ("guideloom_format", "_storage.py"): {"guideloom_read", "guideloom_write"},
}
IN_ONE_MODULE: dict[tuple[str, str], set[str]] = {
    ("guideloom_format", "_processes.py"): {"multiprocess"},
    ("guideloom_write", "ray.py"): {"ray"},
    ("guideloom_write", "_ray_rows.py"): {"ray"},
    ("guideloom_read", "ray.py"): {"ray", "pyarrow"},
}
"""What extras bring, and where it is imported."""


def package_of(path: Path) -> str:
    return path.relative_to(ROOT / "packages").parts[2]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{package_of(path)}/{path.name}")
def test_packages_import_what_they_depend_on(path: Path) -> None:
    """Write never imports read, nor read write; format imports neither but for type checkers."""
    package = package_of(path)
    ours = {name.split(".")[0] for name in imports_of(path) if name.startswith("guideloom")}
    types_only = FOR_TYPES_ONLY.get((package, path.name), set())
    assert ours <= ALLOWED[package] | types_only
    if types_only and path.suffix == ".py":
        at_run_time = set()
        for node in ast.walk(without_type_checking(tree_of(path))):
            if isinstance(node, ast.ImportFrom):
                at_run_time.add((node.module or "").split(".")[0])
        assert not at_run_time & types_only


def without_type_checking(tree: ast.Module) -> ast.Module:
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return tree


THIRD_PARTY: dict[str, set[str]] = {
    "guideloom": set(),
    "guideloom_format": {"numpy", "google_crc32c"},
    "guideloom_write": {"numpy"},
    "guideloom_read": {"numpy"},
    "guideloom_torch": {"multiprocess", "numpy", "torch", "torchdata"},
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{package_of(path)}/{path.name}")
def test_packages_import_no_other_third_party(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports_of(path)}
    others = {name for name in roots if name not in sys.stdlib_module_names}
    others -= {"guideloom", *ALLOWED, "libc", "cpython", "cython", ""}
    package = package_of(path)
    assert others <= THIRD_PARTY[package] | IN_ONE_MODULE.get((package, path.name), set())


PICKLES = ["import pickle", "pickle.loads"]
PICKLING = ("_document_pickle.py", "_transfer.py")
"""A format for one's own data, which says so; and what a loader's own processes send it."""
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml"}
FORBIDDEN_CALLS = {
    *("eval", "exec", "compile", "print", "breakpoint", "input", "__import__"),
    *("os.system", "os.popen", "yaml.load", "torch.load", "np.load", "numpy.load"),
    *("pickle.loads", "pickle.load", "np.fromfile", "numpy.fromfile"),
}


def faults_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in named:
                if name.split(".")[0] in FORBIDDEN_MODULES:
                    yield f"line {node.lineno}: import {name}"
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN_CALLS:
            yield f"line {node.lineno}: {node.id}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in FORBIDDEN_CALLS:
            yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.keyword) and node.arg in ("shell", "allow_pickle"):
            yield f"line {node.value.lineno}: {node.arg}="


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{package_of(path)}/{path.name}")
def test_no_source_runs_data_as_code_or_prints(path: Path) -> None:
    """But for the one module whose format a reading program asks for by name."""
    faults = [fault.split(": ")[1] for fault in faults_in(tree_of(path))]
    assert faults == (PICKLES if path.name in PICKLING else [])


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path.suffix == ".pyx"],
    ids=lambda path: f"{package_of(path)}/{path.name}",
)
def test_no_compiled_source_runs_data_as_code_or_prints(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"\b(?:eval|exec|print|pickle|yaml|shell)\b\s*[(.=]", text) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import yaml as y",
        "eval('1')",
        "f = exec",
        "print(1)",
        "subprocess.run('x', shell=True)",
        "torch.load(p)",
        "np.load(p)",
        "numpy.load(p)",
        "np.load(p, allow_pickle=True)",
        "yaml.load(p)",
        "os.system('x')",
    ],
)
def test_the_reading_of_sources_finds(source: str) -> None:
    assert list(faults_in(ast.parse(source)))
