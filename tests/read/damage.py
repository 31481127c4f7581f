"""Ways to damage a small dataset, every one of each kind, and how to undo them.

A damage says what stands in the place of which files: other bytes, or something that is not a
regular file. All kinds are generators over the files of a dataset, so a sweep is a loop.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

BLOCK = 512

Files = Mapping[str, bytes]
Placed = Callable[[Path], None]
"""Puts something at a path where nothing is."""


@dataclass(frozen=True)
class Damage:
    """What stands in the place of which files."""

    label: str
    contents: Mapping[str, bytes | Placed]


def read_files(directory: Path) -> dict[str, bytes]:
    """Name and content of every file of a dataset."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@contextmanager
def damaged(directory: Path, damage: Damage, intact: Files) -> Iterator[None]:
    """The dataset with this damage; afterwards as it was."""
    for name, content in damage.contents.items():
        path = directory / name
        if isinstance(content, bytes):
            _overwrite(path, content)
        else:
            _clear(path)
            content(path)
    try:
        yield
    finally:
        for name, content in damage.contents.items():
            if not isinstance(content, bytes):
                _clear(directory / name)
        touched = tuple(damage.contents)
        for name, content in intact.items():
            if name.startswith(touched):
                _overwrite(directory / name, content)


def bits(files: Files) -> Iterator[Damage]:
    """Every single bit of every file."""
    for name, data in files.items():
        changed = bytearray(data)
        for k, bit in itertools.product(range(len(data)), range(8)):
            changed[k] ^= 1 << bit
            yield Damage(f"bit {bit} of byte {k}", {name: bytes(changed)})
            changed[k] ^= 1 << bit


def a_bit_of_every_byte(files: Files) -> Iterator[Damage]:
    """One bit of every byte, each of the eight in turn."""
    return (damage for k, damage in enumerate(bits(files)) if k % 8 == k // 8 % 8)


def truncations(files: Files) -> Iterator[Damage]:
    """Every length below the right one, 0 included."""
    for name, data in files.items():
        for length in range(len(data)):
            yield Damage(f"truncated to {length}", {name: data[:length]})


def extensions(files: Files) -> Iterator[Damage]:
    """1, 8 and 4,096 bytes more: zeros, or the content once again."""
    for name, data in files.items():
        for more in (1, 8, 4096):
            yield Damage(f"{more} zeros more", {name: data + bytes(more)})
            again = (data * (more // len(data) + 1))[:more]
            yield Damage(f"{more} bytes of itself more", {name: data + again})


def zeroed_blocks(files: Files) -> Iterator[Damage]:
    """Every block of 512 bytes filled with zeros or with ones."""
    for name, data in files.items():
        for start in range(0, len(data), BLOCK):
            size = len(data[start : start + BLOCK])
            for byte in (b"\0", b"\xff"):
                filled = data[:start] + byte * size + data[start + BLOCK :]
                yield Damage(f"block at {start} is {byte!r}", {name: filled})


def swapped_blocks(files: Files) -> Iterator[Damage]:
    """Every pair of blocks of equal size, within a file and between files."""
    blocks = [(name, start) for name, data in files.items() for start in range(0, len(data), BLOCK)]
    for (name, start), (other, at) in itertools.combinations(blocks, 2):
        first, second = files[name][start : start + BLOCK], files[other][at : at + BLOCK]
        if len(first) != len(second) or first == second:
            continue
        changed = {name: bytearray(files[name]), other: bytearray(files[other])}
        changed[name][start : start + BLOCK] = second
        changed[other][at : at + BLOCK] = first
        yield Damage(
            f"block at {start} swapped with {other} at {at}",
            {where: bytes(data) for where, data in changed.items()},
        )


def exchanged_files(files: Files) -> Iterator[Damage]:
    """Two files of one sort swapped, or one in the place of both.

    Data files also with the one of their checksums, and all files of a part together. A part's
    data under the name of a later part is what a restore from an old copy leaves.
    """
    for name, other in itertools.permutations(files, 2):
        if _suffix(name) != _suffix(other):
            continue
        for names in _belonging_together(name, files):
            stem, other_stem = (_stem(one) for one in (name, other))
            partners = [more.replace(stem, other_stem, 1) for more in names]
            pairs = list(zip(names, partners, strict=True))
            placed: dict[str, bytes] = {mine: files[theirs] for mine, theirs in pairs}
            yield Damage(f"{len(names)} replaced by those of {other}", placed)
            if name < other:
                back: dict[str, bytes] = {theirs: files[mine] for mine, theirs in pairs}
                yield Damage(f"{len(names)} swapped with {other}", placed | back)


def foreign_files(files: Files, others: Files) -> Iterator[Damage]:
    """Files of another dataset that is cut in the same way, in every combination of sorts."""
    pairs = dict(zip(files, others, strict=True))
    sorts = sorted({_suffix(name) for name in files})
    for count in range(1, len(sorts)):
        for chosen in itertools.combinations(sorts, count):
            placed: dict[str, bytes] = {
                name: others[pairs[name]] for name in files if _suffix(name) in chosen
            }
            yield Damage(f"{' '.join(chosen)} of another dataset", placed)
    for name, other in pairs.items():
        yield Damage("of another dataset", {name: others[other]})


def other_things(files: Files, aside: Path) -> Iterator[Damage]:
    """Something in a file's place that is not a regular file, and nothing at all."""
    for name, data in files.items():
        copy = aside / name.replace("/", "_")
        copy.write_bytes(data)
        things: dict[str, Placed] = {
            "a folder": Path.mkdir,
            "a FIFO": os.mkfifo,
            "a symbolic link to a copy": partial(_link, str(copy)),
            "a dangling symbolic link": partial(_link, "nowhere"),
            "a symbolic link to itself": lambda path: _link(path.name, path),
            "a symbolic link to a device": partial(_link, "/dev/zero"),
            "nothing": lambda _: None,
        }
        for label, thing in things.items():
            yield Damage(label, {name: thing})


def other_things_for_folders() -> Iterator[Damage]:
    """The folders of a dataset replaced by a file, or gone."""
    for name in ("commits", "data", "data/0000"):
        yield Damage("a file", {name: lambda path: _overwrite(path, b"x")})
        yield Damage("nothing", {name: lambda _: None})
        yield Damage("an empty folder", {name: Path.mkdir})


def _belonging_together(name: str, files: Files) -> list[tuple[str, ...]]:
    """The file alone; data with its checksums; and with the first data file all of the part."""
    if not name.startswith("data/") or name.endswith(".crc"):
        return [(name,)]
    part = tuple(other for other in files if other.startswith(_stem(name) + "."))
    all_of_it = [part] if len(part) > 2 and name == part[0] else []
    return [(name,), (name, name + ".crc"), *all_of_it]


def _stem(name: str) -> str:
    """A file's name without the sort."""
    folder, slash, base = name.rpartition("/")
    return folder + slash + base.partition(".")[0]


def _suffix(name: str) -> str:
    """The sort of a file."""
    if name.startswith("commits/"):
        return "record"
    return name.rpartition("/")[2].partition(".")[2] if name.startswith("data/") else name


def _link(target: str, path: Path) -> None:
    path.symlink_to(target)


def _overwrite(path: Path, data: bytes) -> None:
    """Without truncating first, which some file systems answer with a flush to the disk."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, data, 0)
        if os.fstat(descriptor).st_size != len(data):
            os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
