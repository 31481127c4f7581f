"""Datasets of the real writer, read by a reader that was made from the format page alone."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.independent import BLOCK, ROLES, IndependentDataset
from format.independent_json import RefusedError, crc32c
from format.stream_writing import (
    ELEMENT_TYPES,
    Appends,
    Array,
    as_columns,
    committed_parts,
    same_columns,
    storage,
    write_commits,
    write_manifest,
)
from guideloom_format import CommitRecord, FileFacts, Owner, Part
from guideloom_format import crc32c as packaged_crc32c
from guideloom_read import verify

ONE_BYTE = ELEMENT_TYPES["one-byte"]
ONE_FIELD = ELEMENT_TYPES["one-field"]

# Several shards with gaps, several commits to each, empty appends first, last, between and only.
COMMITS: list[Appends] = [
    [(3, 17), (0, 5), (3, 0), (3, 40)],
    [(3, 1), (1_000_000_000, 9)],
    [(0, 0)],
    [(0, 0), (0, 33), (2000, 12), (0, 0)],
    [(3, 2), (2000, 1), (7, 0)],
]


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """Durability is tested elsewhere; here it would take two thirds of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def check_agreement(directory: Path, expected: Array) -> IndependentDataset:
    """Both readers open the same dataset with these elements; every checksum is right."""
    ours = IndependentDataset(directory)
    assert len(ours) == len(expected)
    assert ours.header.element_type == expected.dtype
    assert np.array_equal(ours.read(0, len(ours)), expected)
    sizes = [part.files["elements"].size for part in ours.parts]
    assert sum(sizes) == expected.nbytes
    assert ours.verify() == sum(-(-size // BLOCK) for size in sizes)
    report = verify(directory)
    assert not [fault for fault in report.faults if fault.file.startswith("data/")]
    assert report.parts == len(ours.parts)
    with storage(directory, expected.dtype).sync_reader() as reader:
        assert len(reader) == len(expected)
        assert reader.fingerprint == ours.fingerprint
        assert reader.header.dataset_id == ours.header.dataset_id
        assert same_columns(reader.read(0, len(expected)), expected)
    return ours


def check_windows(
    ours: IndependentDataset, expected: Array, windows: list[tuple[int, int]]
) -> None:
    """Both readers give the expected elements from `start` to `stop`, for each window."""
    with storage(ours.path, expected.dtype).sync_reader() as reader:
        for start, stop in windows:
            wanted = expected[start:stop]
            assert np.array_equal(ours.read(start, stop), wanted), (start, stop)
            assert same_columns(reader.read(start, stop - start), wanted), (start, stop)


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_every_element_type_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    expected = write_commits(tmp_path, ELEMENT_TYPES[name], COMMITS)
    ours = check_agreement(tmp_path, expected)
    assert [(part.shard, part.number, part.length) for part in ours.parts] == [
        (0, 0, 5),
        (0, 1, 33),
        (3, 0, 57),
        (3, 1, 1),
        (3, 2, 2),
        (2000, 0, 12),
        (2000, 1, 1),
        (1_000_000_000, 0, 9),
    ]


def test_every_window_is_the_same(tmp_path: Path) -> None:
    expected = write_commits(tmp_path, ELEMENT_TYPES["padded"], [[(1, 3), (5, 4)], [(1, 2)]])
    ours = check_agreement(tmp_path, expected)
    assert len(ours) == 9
    check_windows(ours, expected, [(a, b) for a in range(10) for b in range(a, 10)])


@pytest.mark.parametrize("excess", [-1, 0, 1])
@pytest.mark.parametrize("blocks", [1, 2, 4, 5])
def test_sizes_around_the_borders_of_blocks(tmp_path: Path, blocks: int, excess: int) -> None:
    """A block is 65,536 bytes; the writer's buffer holds four."""
    size = blocks * BLOCK + excess
    for shard, first in enumerate({size, 1, BLOCK - 1, size - size % BLOCK}):
        folder = tmp_path / str(shard)
        expected = write_commits(folder, ONE_BYTE, [[(shard, first), (shard, size - first)]], shard)
        ours = check_agreement(folder, expected)
        last = BLOCK * ((size - 1) // BLOCK)
        edges = [k for k in (last - 1, last, last + 1, size - 1, size) if 0 <= k <= size]
        check_windows(ours, expected, [(a, b) for a in edges for b in edges if a <= b])


def test_an_append_larger_than_the_writer_takes_at_once(tmp_path: Path) -> None:
    expected = write_commits(
        tmp_path, ONE_FIELD, [[(0, 7), (0, 33 * BLOCK), (0, 70_000)], [(0, 9)]]
    )
    ours = check_agreement(tmp_path, expected)
    check_windows(ours, expected, [(33 * BLOCK - 9, 33 * BLOCK + 70_010), (0, 1)])


@pytest.mark.parametrize("commits", [[], [[]], [[(4, 0)]], [[(4, 0), (2, 0)], [(4, 0)]]])
def test_a_stream_without_elements(tmp_path: Path, commits: list[Appends]) -> None:
    expected = write_commits(tmp_path, ONE_FIELD, commits)
    assert check_agreement(tmp_path, expected).parts == []


def add_empty_part(directory: Path, shard: int, number: int) -> None:
    """A part without elements, which our writer never makes and the page allows."""
    header, _ = committed_parts(directory)
    stem = f"by/hand/{shard}.{number}"
    for role in ROLES:
        file = directory / "data" / f"{stem}.{role}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    files = dict.fromkeys(ROLES, FileFacts(0, 0))
    part = Part(shard, number, "00000000deadbeef", 0, stem, files)
    record = CommitRecord(header.dataset_id, part, Owner("hand", 1, "2020-01-01T00:00:00+00:00"))
    path = directory / "commits" / f"{shard:07}-{number:04}.json"
    path.write_bytes(record.encode())


def test_empty_parts_anywhere(tmp_path: Path) -> None:
    add = add_empty_part
    write_commits(tmp_path, ONE_FIELD, [])
    add(tmp_path, 2, 0)  # the first part of a shard, and a shard of nothing else
    add(tmp_path, 0, 0)
    expected = write_commits(tmp_path, ONE_FIELD, [[(2, 5), (3, 2)]])
    add(tmp_path, 2, 2)
    add(tmp_path, 9, 0)
    ours = check_agreement(tmp_path, expected)
    assert [part.length for part in ours.parts] == [0, 0, 5, 0, 2, 0]
    check_windows(ours, expected, [(a, b) for a in range(8) for b in range(a, 8)])
    write_manifest(tmp_path, committed_parts(tmp_path)[1])
    shutil.rmtree(tmp_path / "commits")
    assert check_agreement(tmp_path, expected).fingerprint == ours.fingerprint


def test_a_manifest_with_any_commits_behind_it(tmp_path: Path) -> None:
    """Whatever a manifest has or lacks, the dataset is the same."""
    expected = write_commits(tmp_path, ONE_FIELD, COMMITS)
    _, parts = committed_parts(tmp_path)
    fingerprint = check_agreement(tmp_path, expected).fingerprint
    lengths = {shard: sum(part.shard == shard for part in parts) for shard in (0, 3)}
    for version, (of_0, of_3) in enumerate(np.ndindex(lengths[0] + 1, lengths[3] + 1)):
        kept = {0: of_0, 3: of_3}
        covered = [part for part in parts if part.part < kept.get(part.shard, version % 3)]
        write_manifest(tmp_path, covered, version)
        assert check_agreement(tmp_path, expected).fingerprint == fingerprint
    assert lengths == {0: 2, 3: 3}


def test_what_the_manifest_has_is_not_read_from_records(tmp_path: Path) -> None:
    expected = write_commits(tmp_path, ONE_FIELD, COMMITS)
    write_manifest(tmp_path, committed_parts(tmp_path)[1], version=99_999_999)
    for record in (tmp_path / "commits").iterdir():
        record.write_bytes(b"")
    check_agreement(tmp_path, expected)
    shutil.rmtree(tmp_path / "commits")
    check_agreement(tmp_path, expected)


def test_files_that_nothing_names_are_ignored(tmp_path: Path) -> None:
    expected = write_commits(tmp_path, ONE_FIELD, COMMITS)
    fingerprint = check_agreement(tmp_path, expected).fingerprint
    arabic = "\N{ARABIC-INDIC DIGIT ZERO}" * 7
    for name in ("0000001-0000.json.tmp", "1-0.json", "00000001-0000.json", f"{arabic}-0000.json"):
        (tmp_path / "commits" / name).write_bytes(b"not a record")
    (tmp_path / "data" / "0000" / "0000001-0000-0123456789abcdef.elements").write_bytes(b"12")
    (tmp_path / "owners").mkdir(exist_ok=True)
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "00000007.json").write_bytes(b"not a manifest")
    assert check_agreement(tmp_path, expected).fingerprint == fingerprint


def test_the_writer_names_its_files_as_the_page_says(tmp_path: Path) -> None:
    write_commits(tmp_path, ONE_FIELD, COMMITS)
    parts = IndependentDataset(tmp_path).parts
    for part in parts:
        name = f"{part.shard:07}-{part.number:04}"
        assert part.stem == f"{part.shard // 1000:04}/{name}-{part.token}"
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    records = {Path(f"commits/{part.shard:07}-{part.number:04}.json") for part in parts}
    data = {part.path(Path(), role) for part in parts for role in ROLES}
    assert names == {Path("guideloom.json")} | records | data


def test_parts_of_one_session_share_a_token_and_sessions_do_not(tmp_path: Path) -> None:
    write_commits(tmp_path, ONE_FIELD, [[(0, 1), (1, 1)], [(0, 1)], [(0, 1)]])
    tokens = {(part.shard, part.number): part.token for part in IndependentDataset(tmp_path).parts}
    assert tokens[0, 0] == tokens[1, 0] == tokens[0, 1] != tokens[0, 2]


def test_each_changed_byte_is_found(tmp_path: Path) -> None:
    """The independent reader would notice: its agreement says something."""
    expected = write_commits(tmp_path, ONE_BYTE, [[(0, 70)]])
    ours = check_agreement(tmp_path, expected)
    for role in ROLES:
        path = ours.parts[0].path(tmp_path, role)
        intact = path.read_bytes()
        for place in range(len(intact)):
            changed = bytearray(intact)
            changed[place] ^= 1 << place % 8
            path.write_bytes(changed)
            with pytest.raises(RefusedError, match="block 0 is damaged"):
                ours.read(place % 70, 70)
            assert not verify(tmp_path).clean
        path.write_bytes(intact)
    check_agreement(tmp_path, expected)


def test_a_block_in_another_place_is_found(tmp_path: Path) -> None:
    """Blocks of equal bytes have other checksums in other blocks, parts and datasets."""
    zeros = {"byte": np.zeros(2 * BLOCK, np.uint8)}
    for name in ("a", "b"):
        with storage(tmp_path / name, ONE_BYTE).sync_writer() as writer:
            for shard in (0, 1):
                writer.append(shard, zeros)
                writer.commit()
                writer.append(shard, zeros)
                writer.commit()
    checksums = [
        part.path(dataset.path, "elements.crc").read_bytes()
        for dataset in (IndependentDataset(tmp_path / "a"), IndependentDataset(tmp_path / "b"))
        for part in dataset.parts
    ]
    blocks = np.frombuffer(b"".join(checksums), "<u4")
    assert len(blocks) == 16
    assert len(set(blocks.tolist())) == 16


@pytest.mark.parametrize("name", ["nested-in-one-field", "padded"])
def test_padding_is_written_as_zeros(tmp_path: Path, name: str) -> None:
    """What stood in the writer's memory before is not published with the data."""
    inner = np.dtype([("d", "u1"), ("e", "<f8")], align=True)
    dtype = np.dtype(
        [("c", inner)] if name == "nested-in-one-field" else [("c", inner), ("f", "u1")]
    )
    for value in (0xAB, 0xCD):
        directory = tmp_path / str(value)
        elements = np.zeros(400, dtype)[::2]
        for size in (elements.nbytes, 200 * inner.itemsize):
            for used in [np.full(size, value, np.uint8) for _ in range(50)]:
                del used  # freed memory that the next arrays may get
        with storage(directory, dtype).sync_writer() as writer:
            writer.append(0, as_columns(elements))
        part = IndependentDataset(directory).parts[0]
        assert not any(part.path(directory, "elements").read_bytes())


@pytest.mark.parametrize(
    "size", [*range(70), 1000, *range(4090, 4230), BLOCK - 1, BLOCK, BLOCK + 1]
)
def test_both_crc32c_agree(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert crc32c(data) == packaged_crc32c(data)
    assert crc32c(bytes(size)) == packaged_crc32c(bytes(size))


def cuts(itemsize: int) -> st.SearchStrategy[list[Appends]]:
    """Commits of appends, most of them small, some around a border of blocks."""
    borders = [0, 1, *((BLOCK + k) // itemsize for k in (-1, 0, 1)), 4 * BLOCK // itemsize + 1]
    counts = st.integers(0, 300) | st.sampled_from(borders)
    append = st.tuples(st.sampled_from([0, 1, 3, 1000, 10**9]), counts)
    return st.lists(st.lists(append, max_size=4), max_size=4)


@settings(max_examples=30, deadline=None)
@given(
    data=st.data(),
    name=st.sampled_from(["one-byte", "one-field", "sub-arrays", "nested"]),
    seed=st.integers(0, 2**32),
)
def test_any_cut_into_appends_commits_and_shards(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str, seed: int
) -> None:
    """Whatever the cuts, and whichever prefix of each shard a manifest has."""
    directory = tmp_path_factory.mktemp("stream")
    dtype = ELEMENT_TYPES[name]
    expected = write_commits(directory, dtype, data.draw(cuts(dtype.itemsize), "commits"), seed)
    ours = check_agreement(directory, expected)
    if data.draw(st.booleans(), "manifest"):
        limits = data.draw(st.lists(st.integers(0, 4), min_size=4, max_size=4), "parts in it")
        _, parts = committed_parts(directory)
        write_manifest(directory, [part for part in parts if part.part < limits[part.shard % 4]])
        assert check_agreement(directory, expected).fingerprint == ours.fingerprint
    places = st.integers(0, len(expected))
    pairs = data.draw(st.lists(st.tuples(places, places), max_size=5), "windows")
    check_windows(ours, expected, [(min(pair), max(pair)) for pair in pairs])
    shutil.rmtree(directory)
