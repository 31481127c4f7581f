"""The machine whose power can fail: it does what a real file system does, and loses what it may."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guideloom_format import DamagedFileError
from guideloom_write._files import PosixFiles
from write.power_loss import memory_folder
from write.power_machine import Machine, MachineFiles
from write.power_states import KEPT, LOST, SECTOR, State, Tear, choices, points, state

NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "no/a"])
CALLS = st.one_of(
    st.tuples(st.sampled_from(["make_folder", "folder_exists", "create", "reopen"]), NAMES),
    st.tuples(st.sampled_from(["size", "modified", "remove", "list_names", "touch"]), NAMES),
    st.tuples(st.just("read"), NAMES, st.integers(0, 9)),
    st.tuples(st.just("link"), NAMES, NAMES),
    st.tuples(st.just("replace"), st.sampled_from(["a", "b"]), st.sampled_from(["a", "b"])),
    st.tuples(st.just("write"), st.binary(max_size=9)),
    st.tuples(st.sampled_from(["sync", "close"])),
)


class Hands:
    """Plays calls on one implementation; the last descriptor that was given is the one in use."""

    def __init__(self, files: PosixFiles, root: str) -> None:
        self._files = files
        self._root = root
        self._open: list[int] = []

    def do(self, kind: str, *arguments: Any) -> Any:
        """What comes of a call, without what differs between any two file systems."""
        if kind in ("write", "sync", "close"):
            if not self._open:
                return None
            descriptor = self._open.pop() if kind == "close" else self._open[-1]
            return getattr(self._files, kind)(descriptor, *arguments)
        paths = [f"{self._root}/{a}" if isinstance(a, str) else a for a in arguments]
        try:
            found = getattr(self._files, kind)(*paths)
        except OSError as error:
            return type(error).__name__
        except DamagedFileError:
            return "damaged"
        if kind in ("create", "reopen"):
            self._open.append(found)
            return None
        if kind == "modified":
            return found > 0
        return sorted(found) if kind == "list_names" else found

    def end(self) -> None:
        while self._open:
            self._files.close(self._open.pop())


def is_about_a_folder(calls: list[tuple[Any, ...]], k: int, folders: set[str]) -> bool:
    """Calls that the writer never makes: operations for files on a folder."""
    kind, *names = calls[k]
    return kind not in ("make_folder", "folder_exists", "list_names", "read") and (
        any(name in folders for name in names if isinstance(name, str))
    )


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(calls=st.lists(CALLS, max_size=30))
def test_it_does_what_a_real_file_system_does(calls: list[tuple[Any, ...]]) -> None:
    with memory_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        machine = Machine(["/root"])
        real, model = Hands(PosixFiles(), str(folder)), Hands(MachineFiles(machine), "/root")
        made: set[str] = set()
        for k, (kind, *arguments) in enumerate(calls):
            if kind == "make_folder":
                made.add(arguments[0])
            if is_about_a_folder(calls, k, made):
                continue
            if kind in ("remove", "replace") and real._open:
                continue  # the machine has no file without a name
            assert model.do(kind, *arguments) == real.do(kind, *arguments), (k, kind, arguments)
        real.end()
        model.end()


def test_every_operation_is_modelled() -> None:
    steps = {name for name, value in vars(PosixFiles).items() if callable(value)}
    assert steps >= {"create", "write", "sync", "link", "replace"}
    assert {name for name in steps if name not in vars(MachineFiles)} == set()


def written(machine: Machine, path: str, data: bytes, *, synced: bool = False) -> None:
    files = MachineFiles(machine)
    descriptor = files.create(path)
    files.write(descriptor, data)
    if synced:
        files.sync(descriptor)
    files.close(descriptor)


def left(machine: Machine) -> list[State]:
    """All states after the last event."""
    last = list(points(machine))[-1]
    return [state(last, choice) for choice in choices(last, random.Random(1), samples=50)]


def test_what_is_synced_with_its_name_is_never_lost() -> None:
    machine = Machine()
    files = MachineFiles(machine)
    files.make_folder("/d")
    written(machine, "/d/a", b"whole", synced=True)
    files.sync_folder("/d")
    files.sync_folder("/")
    assert [found.files for found in left(machine)] == [{"d/a": b"whole"}]


def test_a_synced_file_may_have_no_name() -> None:
    machine = Machine()
    written(machine, "/a", b"whole", synced=True)
    assert {tuple(found.files) for found in left(machine)} == {(), ("a",)}


def test_a_folder_without_a_name_takes_all_in_it() -> None:
    machine = Machine()
    files = MachineFiles(machine)
    files.make_folder("/d")
    written(machine, "/d/a", b"whole", synced=True)
    files.sync_folder("/d")
    assert {tuple(found.files) for found in left(machine)} == {(), ("d/a",)}


def test_a_name_may_be_there_without_the_data() -> None:
    machine = Machine()
    written(machine, "/a", b"12345")
    contents = {found.files.get("a") for found in left(machine)}
    assert contents >= {None, b"", b"12345", bytes(5)}
    assert any(found not in (None, b"", b"12345", bytes(5)) for found in contents)


def test_a_later_name_may_be_there_without_an_earlier_one() -> None:
    machine = Machine()
    written(machine, "/a", b"1", synced=True)
    MachineFiles(machine).link("/a", "/b")
    names = {tuple(sorted(found.files)) for found in left(machine)}
    assert names == {(), ("a",), ("b",), ("a", "b")}


def test_a_rename_leaves_the_old_file_or_the_new_one() -> None:
    machine = Machine()
    written(machine, "/a", b"old", synced=True)
    MachineFiles(machine).sync_folder("/")
    written(machine, "/b", b"new", synced=True)
    MachineFiles(machine).replace("/b", "/a")
    found = {tuple(sorted(each.files.items())) for each in left(machine)}
    both = (("a", b"new"), ("b", b"new"))
    assert found == {
        (("a", b"old"),),
        (("a", b"new"),),
        (("a", b"old"), ("b", b"new")),
        both,
    }


def test_a_write_tears_at_sectors_of_the_file() -> None:
    machine = Machine()
    files = MachineFiles(machine)
    descriptor = files.create("/a")
    files.write(descriptor, b"x" * 100)
    files.sync(descriptor)
    files.sync_folder("/")
    files.write(descriptor, b"y" * 2000)
    last = list(points(machine))[-1]
    torn = state(last, (Tear(2000, frozenset({1, 3}), "zeros"),)).files["a"]
    expected = b"x" * 100 + bytes(412) + b"y" * 512 + bytes(512) + b"y" * 512 + bytes(52)
    assert torn == expected
    assert len(torn) == 2100
    short = state(last, (Tear(SECTOR - 100, frozenset({0}), "noise"),)).files["a"]
    assert short == b"x" * 100 + b"y" * 412
    for found in left(machine):
        assert found.files["a"].startswith(b"x" * 100), "what was durable was touched"


def test_old_data_of_another_file_may_stand_in_the_place_of_new_data() -> None:
    machine = Machine()
    written(machine, "/a.json", b"first")
    written(machine, "/b.json", b"other")
    assert any(found.files.get("b.json") == b"first" for found in left(machine))


def test_few_pending_operations_are_tried_in_all_combinations() -> None:
    machine = Machine()
    files = MachineFiles(machine)
    for name in "abc":
        files.make_folder(f"/{name}")
    found = {found.folders for found in left(machine)}
    subsets = itertools.chain.from_iterable(itertools.combinations("abc", n) for n in range(4))
    assert found == set(subsets)


def test_many_pending_operations_are_tried_alone_and_left_out_alone() -> None:
    machine = Machine()
    files = MachineFiles(machine)
    names = "abcdefgh"
    for name in names:
        files.make_folder(f"/{name}")
    last = list(points(machine))[-1]
    tried = set(choices(last, random.Random(1), samples=200))
    for k in range(len(names)):
        for one, others in ((KEPT, LOST), (LOST, KEPT)):
            assert (*[others] * k, one, *[others] * (len(names) - k - 1)) in tried
    assert len(tried) > 60


def test_states_that_differ_have_other_digests(tmp_path: Path) -> None:
    del tmp_path
    found = [
        State({}, ()),
        State({}, ("d",)),
        State({"a": b""}, ()),
        State({"a": b"\n"}, ()),
        State({"a": b"", "b": b""}, ()),
        State({"a\n0\nb": b""}, ()),
    ]
    assert len({each.digest() for each in found}) == len(found)


@pytest.mark.parametrize("kind", ["link", "replace", "remove", "reopen", "size", "read", "touch"])
def test_a_file_that_is_not_there_is_an_error(kind: str) -> None:
    arguments = {"link": ("/b",), "replace": ("/b",), "read": (9,)}.get(kind, ())
    with pytest.raises(FileNotFoundError, match=os.strerror(2)):
        getattr(MachineFiles(Machine()), kind)("/a", *arguments)
