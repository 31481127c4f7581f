"""What the page lets a reader of documents and spans refuse or ignore: both readers agree.

Every dataset here is made by hand with checksums that are right, so only the check that a test is
about can refuse it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from format.independent import roles_of
from format.independent_json import LARGEST, RefusedError
from format.independent_spans import IndependentSpans
from format.independent_writing import HandWriter, MadePart, made_parts, spans_file
from format.kind_cases import BYTES_FORMAT
from format.kind_refusing import (
    KINDS,
    check_both_read,
    check_both_refuse_to_open,
    check_both_refuse_to_read,
    independent,
    packaged,
    read_whole,
    write,
)
from format.member_changes import Change, change_members, put, remove
from guideloom import GuideLoomError
from guideloom_read import verify

HEADER, RECORD, MANIFEST = "guideloom.json", "commits/0000003-0000.json", "manifest.json"

publishers = pytest.mark.parametrize("publisher", ["record", "manifest"])
kinds = pytest.mark.parametrize("kind", KINDS)
roles = pytest.mark.parametrize(
    "kind, role", [(kind, role) for kind in KINDS for role in roles_of(kind)]
)

# Facts that do not fit the table of roles.
MISFITS: list[tuple[str, dict[str, Any], str]] = [
    *[("document", {"length": length}, "size of the ends") for length in (1, 2, 4, 2**59)],
    *[("document", {"ends": bytes(size)}, "size of the ends") for size in (0, 8, 23, 25, 32)],
    *[("document", {"documents": b"x" * size}, "size of the documents") for size in (1, 5, 7)],
    ("document", {"length": 0, "ends": b"", "documents": b"ab"}, "size of the documents"),
    *[("stream-with-meta", {"length": size}, "size of the elements") for size in (0, 3, 5, 2**60)],
    *[("stream-with-meta", {"elements": bytes(size)}, "of the elements") for size in (0, 7, 9, 16)],
    *[("stream-with-meta", {"spans": bytes(size)}, "size of the spans") for size in (0, 8, 47, 49)],
    (
        "stream-with-meta",
        {"length": 0, "elements": b"", "spans": bytes(8), "payloads": b""},
        "size of the spans",
    ),
    (
        "stream-with-meta",
        {"length": 0, "elements": b"", "spans": b"", "payloads": b"p"},
        "size of the payloads",
    ),
    *[
        (kind, {role.replace(".", "_"): bytes(size)}, f"size of {role} is")
        for kind in KINDS
        for role in roles_of(kind)
        if role.endswith(".crc")
        for size in (0, 3, 5, 8)
    ],
]


@publishers
@pytest.mark.parametrize("kind, facts, match", MISFITS)
def test_both_refuse_sizes_that_do_not_fit(
    tmp_path: Path, kind: str, facts: dict[str, Any], match: str, publisher: str
) -> None:
    write(tmp_path, kind, publisher, **facts)
    check_both_refuse_to_open(tmp_path, kind, match)


@kinds
@publishers
def test_both_read_what_fits(tmp_path: Path, kind: str, publisher: str) -> None:
    """The cases above are refused for what they say, and for nothing else."""
    write(tmp_path, kind, publisher)
    check_both_read(tmp_path, kind)


@publishers
@pytest.mark.parametrize(
    "pairs, payloads", [([], b""), ([(0, 0)], b""), ([(0, 1), (0, 3)], b"abc")]
)
def test_a_part_of_no_elements_may_have_spans(
    tmp_path: Path, pairs: list[tuple[int, int]], payloads: bytes, publisher: str
) -> None:
    kind = "stream-with-meta"
    spans = spans_file(pairs)
    write(tmp_path, kind, publisher, 0, elements=b"", spans=spans, payloads=payloads)
    ours = IndependentSpans(tmp_path)
    ours.verify()
    assert (len(ours), ours.first_spans[-1]) == (0, len(pairs))
    with packaged(tmp_path, kind).sync_reader() as reader:
        assert len(reader) == 0
        assert reader.fingerprint == ours.fingerprint
        assert read_whole(reader, kind) == (b"", [], [])
    assert verify(tmp_path).clean


@publishers
@roles
def test_both_refuse_a_missing_role(tmp_path: Path, kind: str, role: str, publisher: str) -> None:
    write(tmp_path, kind, publisher)
    place = ("files", role) if publisher == "record" else ("parts", "files", role)
    name = RECORD if publisher == "record" else MANIFEST
    change_members(tmp_path / name, remove(*place))
    check_both_refuse_to_open(tmp_path, kind, f"the member '{role}' is missing")


ROLE_CHANGES: list[tuple[Change, str]] = [
    (put("bytes", value=1.0), "bytes is 1.0"),
    (put("bytes", value=-1), "bytes is -1"),
    (put("bytes", value=True), "bytes is True"),
    (remove("bytes"), "the member 'bytes' is missing"),
    (put("crc32c", value=2**32), "crc32c is 4294967296"),
    (put("crc32c", value="0"), "crc32c is '0'"),
    (remove("crc32c"), "the member 'crc32c' is missing"),
]


@roles
@pytest.mark.parametrize("change, match", ROLE_CHANGES)
def test_both_refuse_facts_of_each_role(
    tmp_path: Path, kind: str, role: str, change: Change, match: str
) -> None:
    write(tmp_path, kind, "record")
    change_members(tmp_path / RECORD, lambda members: change(members["files"][role]))
    check_both_refuse_to_open(tmp_path, kind, match)


@roles
@pytest.mark.parametrize("fact", ["bytes", "crc32c"])
def test_both_refuse_columns_of_another_length(
    tmp_path: Path, kind: str, role: str, fact: str
) -> None:
    for column in ([], [0, 0]):
        write(tmp_path, kind, "manifest")
        change_members(tmp_path / MANIFEST, put("parts", "files", role, fact, value=column))
        match = f"{fact} is {len(column)}; expected 1 entries, one per part"
        check_both_refuse_to_open(tmp_path, kind, match)


@roles
def test_the_fingerprint_is_over_every_role(tmp_path: Path, kind: str, role: str) -> None:
    """A checksum of a whole file is not looked at on opening, and yet it counts."""
    write(tmp_path, kind, "manifest")

    def change(members: dict[str, Any]) -> None:
        members["parts"]["files"][role]["crc32c"][0] ^= 1

    change_members(tmp_path / MANIFEST, change)
    check_both_refuse_to_open(tmp_path, kind, "fingerprint is")


@publishers
@kinds
def test_both_ignore_roles_that_the_kind_has_not(tmp_path: Path, kind: str, publisher: str) -> None:
    """Those of other kinds too, whatever is said of them; also in the fingerprint."""
    write(tmp_path, kind, publisher)
    others = {"stream-with-meta": ("documents", "ends.crc"), "document": ("elements", "spans")}
    for role in (*others[kind], "later"):
        if publisher == "record":
            change_members(tmp_path / RECORD, put("files", role, value={"bytes": "many"}))
        else:
            change_members(tmp_path / MANIFEST, put("parts", "files", role, value=[7]))
    check_both_read(tmp_path, kind)


@pytest.mark.parametrize("other", ["stream", *KINDS, "table"])
@kinds
def test_both_refuse_another_kind(tmp_path: Path, kind: str, other: str) -> None:
    """A reader of one kind does not read another, whether or not its parts have the roles.

    Those of a stream with metadata have what a stream needs, and the rest is ignored: this change
    of the header makes a stream without a fault, which is another dataset.
    """
    write(tmp_path, kind, "record")
    if other != kind:
        change_members(tmp_path / HEADER, put("kind", value=other))
        with pytest.raises(RefusedError):
            independent(tmp_path, kind)
        with pytest.raises(GuideLoomError, match=f"kind (is )?'{other}'"):
            packaged(tmp_path, kind).sync_reader().open()
        assert verify(tmp_path).clean == ((kind, other) == ("stream-with-meta", "stream"))


@kinds
def test_sizes_up_to_the_largest(tmp_path: Path, kind: str) -> None:
    """Only facts, since no disk has files of such sizes."""
    large = "documents" if kind == "document" else "payloads"

    def state(size: int) -> None:
        """The size of the large file, and that of its checksums, which follows from it."""
        change_members(tmp_path / RECORD, put("files", large, "bytes", value=size))
        blocks = -(-size // 65536)
        change_members(tmp_path / RECORD, put("files", f"{large}.crc", "bytes", value=4 * blocks))

    write(tmp_path, kind, "record")
    files = independent(tmp_path, kind).parts[0].files
    room = LARGEST - sum(facts.size for role, facts in files.items() if large not in role)
    largest = room // 65540 * 65536  # with its checksums; a reader may add up in floating point
    for size in (2**31, 2**32 + 2, 2**53 + 2, 2**61, largest - 2**12):
        state(size)
        opened = independent(tmp_path, kind)
        with packaged(tmp_path, kind).sync_reader() as reader:
            assert len(reader) == len(opened)
            assert reader.fingerprint == opened.fingerprint
    for size in (largest + 2**17, LARGEST, LARGEST + 2, 2**63, 2**64):
        state(size)
        check_both_refuse_to_open(tmp_path, kind, "bytes is|bytes together")


@roles
def test_files_of_another_size(tmp_path: Path, kind: str, role: str) -> None:
    """The files of checksums are opened by verification only, if a reader likes."""
    part = write(tmp_path, kind, "record")
    file = tmp_path / "data" / f"{part.stem}.{role}"
    intact = file.read_bytes()
    for content in (intact[:-1], intact + b"\0", intact * 2, b"", None):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        if role.endswith(".crc"):
            with pytest.raises((RefusedError, FileNotFoundError)):
                independent(tmp_path, kind).verify()
            assert not verify(tmp_path).clean
        else:
            check_both_refuse_to_read(tmp_path, kind, rf"\.{role}\b")
        file.write_bytes(intact)
    check_both_read(tmp_path, kind)


def _link(path: Path, kept: Path) -> None:
    path.symlink_to(kept)


NOT_FILES: list[Callable[[Path, Path], object]] = [
    _link,
    lambda path, _: path.mkdir(),
    lambda path, _: os.mkfifo(path),
]


@roles
@pytest.mark.parametrize("make", NOT_FILES, ids=["link", "folder", "pipe"])
def test_data_that_is_no_regular_file(
    tmp_path: Path, kind: str, role: str, make: Callable[[Path, Path], object]
) -> None:
    part = write(tmp_path / "dataset", kind, "record")
    file = tmp_path / "dataset" / "data" / f"{part.stem}.{role}"
    make(file, file.rename(tmp_path / "kept"))
    with pytest.raises(RefusedError):
        independent(tmp_path / "dataset", kind).verify()
    assert not verify(tmp_path / "dataset").clean
    if not role.endswith(".crc"):
        with (
            packaged(tmp_path / "dataset", kind).sync_reader() as reader,
            pytest.raises(GuideLoomError, match=r"cannot be opened|not a regular file"),
        ):
            read_whole(reader, kind)


@roles
def test_each_changed_byte_is_found(tmp_path: Path, kind: str, role: str) -> None:
    part = write(tmp_path, kind, "record")
    file = tmp_path / "data" / f"{part.stem}.{role}"
    intact = file.read_bytes()
    for place in range(len(intact)):
        changed = bytearray(intact)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        with pytest.raises(RefusedError, match="damaged"):
            independent(tmp_path, kind).verify()
        assert not verify(tmp_path).clean
    file.write_bytes(intact)
    check_both_read(tmp_path, kind)


@roles
def test_checksums_are_those_of_their_place(tmp_path: Path, kind: str, role: str) -> None:
    """A file with its checksums under another role, part, shard or dataset is found."""
    if role.endswith(".crc"):
        return
    part = write(tmp_path, kind, "record")
    name = f"{role}.crc"
    right = made_parts(independent(tmp_path, kind))[0].contents[name]
    for place, wrong in enumerate(
        [
            MadePart(3, 1, 0, part.contents),
            MadePart(2, 0, 0, part.contents),
            MadePart(3, 0, 0, part.contents, token="0" * 16),
        ]
    ):
        folder = tmp_path / str(place)
        writer = HandWriter.create(folder, kind, "<u2", BYTES_FORMAT)
        writer.data(wrong)
        other = (folder / "data" / f"{wrong.stem}.{name}").read_bytes()
        assert other != right
        changed: dict[str, Any] = {name.replace(".", "_"): other}
        write(tmp_path / f"of-{place}", kind, "record", **changed)
        with pytest.raises(RefusedError, match=f"{role}: block 0 is damaged"):
            independent(tmp_path / f"of-{place}", kind).verify()
        assert not verify(tmp_path / f"of-{place}").clean


@kinds
@pytest.mark.parametrize("excess", [0, 1])
def test_the_longest_name_of_a_file(tmp_path: Path, kind: str, excess: int) -> None:
    """`data/` + stem + `.` + role has at most 255 characters for each role, the longest too."""
    part = write(tmp_path, kind, "record")
    stem = "x" * 100 + "/" + "y" * (255 - 101 - 6 - max(map(len, roles_of(kind))) + excess)
    change_members(tmp_path / RECORD, put("stem", value=stem))
    for role in roles_of(kind):
        path = tmp_path / "data" / f"{stem}.{role}"
        path.parent.mkdir(exist_ok=True)
        (tmp_path / "data" / f"{part.stem}.{role}").rename(path)
    if excess:
        check_both_refuse_to_open(tmp_path, kind, "names the file")
    else:
        check_both_read(tmp_path, kind)
