"""Documents and streams with metadata: what either writer wrote, both readers read.

The independent reader and writer were made from the format page alone; see `independent.py`.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.independent import BLOCK
from format.independent_documents import IndependentDocuments
from format.independent_spans import IndependentSpans
from format.independent_writing import HandWriter, MadePart, made_parts
from format.kind_agreement import (
    BACKENDS,
    check_documents,
    check_samples,
    check_spans,
    document_storage,
    span_storage,
)
from format.kind_cases import (
    BYTES_FORMAT,
    SHARDS,
    SPANS_FORMAT,
    Documents,
    ExpectedSpans,
    Spans,
    documents,
    expected_spans,
    parts_of_documents,
    parts_of_spans,
    spans,
    write_documents,
    write_spans,
)

# How documents are stored: the header's element type and the type of a document's array.
DOCUMENT_TYPES: list[tuple[Any, Any, Any]] = [
    ("|u1", None, BYTES_FORMAT),
    ("<u2", "<u2", {"name": "document-numpy", "parameters": {"dtype": "<u2"}}),
    (
        [["a", "<u4"], ["b", "|i1"]],
        [("a", "<u4"), ("b", "i1")],
        {"name": "document-numpy", "parameters": {"dtype": [["a", "<u4"], ["b", "|i1"]]}},
    ),
]
publications = st.tuples(st.integers(0, 6), st.sampled_from(["all", "rest"]))
backends = st.sampled_from(BACKENDS)


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """Durability is tested elsewhere; here it would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def all_documents(shards: Documents) -> list[bytes]:
    return [one for shard in sorted(shards) for part in shards[shard] for one in part]


def windows_of(count: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    pair = st.tuples(st.integers(0, count), st.integers(0, count))
    return st.lists(pair.map(lambda pair: (min(pair), max(pair))), max_size=12)


def every_window(count: int) -> list[tuple[int, int]]:
    return [(start, stop) for start in range(count + 1) for stop in range(start, count + 1)]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), row=st.integers(0, 2), published=publications, backend=backends)
def test_documents_written_by_hand(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    row: int,
    published: tuple[int, str],
    backend: Any,
) -> None:
    path = tmp_path_factory.mktemp("documents")
    described, dtype, storage = DOCUMENT_TYPES[row]
    shards = data.draw(documents((1, 2, 5)[row]), "documents")
    parts = parts_of_documents(shards)
    writer = HandWriter.create(path, "document", described, storage)
    writer.publish(parts, min(published[0], len(parts)), published[1])
    ours = check_documents(path, all_documents(shards), dtype, backend)
    assert ours.fingerprint == writer.fingerprint(parts)
    shutil.rmtree(path)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), shards=spans(), published=publications, backend=backends)
def test_spans_written_by_hand(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    shards: Spans,
    published: tuple[int, str],
    backend: Any,
) -> None:
    path = tmp_path_factory.mktemp("spans")
    parts = parts_of_spans(shards, 2)
    writer = HandWriter.create(path, "stream-with-meta", "<u2", SPANS_FORMAT)
    writer.publish(parts, min(published[0], len(parts)), published[1])
    expected = expected_spans(shards, parts, "<u2")
    windows = data.draw(windows_of(len(expected.elements)), "windows")
    ours = check_spans(path, expected, windows, backend)
    assert ours.fingerprint == writer.fingerprint(parts)
    length, stride = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)), "cut")
    samples = check_samples(path, expected, length, stride)
    assert samples == max(0, (len(expected.elements) - length) // stride + 1)
    shutil.rmtree(path)


DOCUMENT_EDGES: list[Documents] = [
    {},
    {0: [[]]},
    {7: [[b""]]},
    {0: [[b"", b"", b""]]},
    {0: [[b"", b"ab", b""]], 5: [[], [b""], [b"c"], []]},
    {3: [[b"a"], [b""], [b"b"]], 10**9: [[b""], [b"cd", b""]]},
]


@pytest.mark.parametrize("manifest", [0, 1, 9])
@pytest.mark.parametrize("shards", DOCUMENT_EDGES)
def test_documents_of_no_bytes_and_parts_of_no_documents(
    tmp_path: Path, shards: Documents, manifest: int
) -> None:
    parts = parts_of_documents(shards)
    writer = HandWriter.create(tmp_path, "document", "|u1", BYTES_FORMAT)
    writer.publish(parts, min(manifest, len(parts)), "rest")
    for backend in BACKENDS:
        check_documents(tmp_path, all_documents(shards), None, backend)


SPAN_EDGES: list[Spans] = [
    {},
    {0: [[]]},
    {0: [[(0, b"")]]},
    {0: [[(0, b"only payload")]], 1: [[(0, b""), (0, b"x")]]},
    {0: [[(1, b"a"), (1, b""), (1, b"c")]]},
    {0: [[(0, b"x"), (2, b"a"), (0, b""), (0, b"y"), (3, b"b"), (0, b"z")]]},
    {2: [[], [(0, b"x")], [(4, b"")]], 9: [[(1, b"e")], [], [(2, b"f"), (0, b"g")]]},
    {0: [[(5, b"a")], [(0, b"b")], [(5, b"c")]], 10**9: [[(1, b"")], [(1, b"d")]]},
]


@pytest.mark.parametrize("manifest", [0, 1, 9])
@pytest.mark.parametrize("shards", SPAN_EDGES)
def test_spans_of_no_elements_and_parts_of_no_spans(
    tmp_path: Path, shards: Spans, manifest: int
) -> None:
    """Every window and every cut into samples."""
    parts = parts_of_spans(shards, 2)
    writer = HandWriter.create(tmp_path, "stream-with-meta", "<u2", SPANS_FORMAT)
    writer.publish(parts, min(manifest, len(parts)), "rest")
    expected = expected_spans(shards, parts, "<u2")
    count = len(expected.elements)
    for backend in BACKENDS:
        check_spans(tmp_path, expected, every_window(count), backend)
    for length, stride in np.ndindex(count + 1, count + 1):
        check_samples(tmp_path, expected, length + 1, stride + 1)


@pytest.mark.parametrize("count", [8191, 8192, 8193])
def test_ends_of_documents_around_the_border_of_a_block(tmp_path: Path, count: int) -> None:
    """Of their bytes too: the documents before the last ones have a block less one to three."""
    shards = {0: [[b"x" * (8 - (k == 5)) for k in range(count)] + [b"", b"ab", b"cde"]]}
    write_documents(tmp_path, parts_of_documents(shards))
    check_documents(tmp_path, all_documents(shards))


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_large_documents_around_the_borders_of_blocks(tmp_path: Path, excess: int) -> None:
    random = np.random.default_rng(excess + 1)
    sizes = [BLOCK + excess, 0, 2 * BLOCK, BLOCK - 1, 1, 4 * BLOCK + excess, 0]
    shards = {0: [[random.bytes(size) for size in sizes], [random.bytes(3)]]}
    write_documents(tmp_path, parts_of_documents(shards))
    check_documents(tmp_path, all_documents(shards))


@pytest.mark.parametrize("count", [4095, 4096, 4097, 8193])
def test_spans_around_the_border_of_a_block(tmp_path: Path, count: int) -> None:
    shards = {0: [[(k % 3, b"p" * (k % 5)) for k in range(count)]], 4: [[(2, b"q")]]}
    parts = parts_of_spans(shards, 2)
    write_spans(tmp_path, parts)
    expected = expected_spans(shards, parts, "<u2")
    border, last = expected.spans[4094][0], len(expected.elements)
    around = (border - 9, min(border + 9, last))
    check_spans(tmp_path, expected, [around, (0, 9), (last - 9, last)])
    check_samples(tmp_path, expected, 100, 97)


def test_what_nobody_names_is_ignored(tmp_path: Path) -> None:
    """Data without a record, and parts that only a record has behind those of a manifest."""
    shards = {0: [[b"ab"], [b"c", b""]], 4: [[b"d"]]}
    parts = parts_of_documents(shards)
    writer = write_documents(tmp_path, parts)
    fingerprint = check_documents(tmp_path, all_documents(shards)).fingerprint
    writer.data(MadePart(4, 1, 0, {"documents": b"", "ends": b""}, token="0" * 16))
    assert check_documents(tmp_path, all_documents(shards)).fingerprint == fingerprint
    for version in range(len(parts) + 1):
        writer.manifest(parts[:version], version)
        assert check_documents(tmp_path, all_documents(shards)).fingerprint == fingerprint
    for record in (tmp_path / "commits").iterdir():
        record.write_bytes(b"")
    assert check_documents(tmp_path, all_documents(shards)).fingerprint == fingerprint


# Commits of the packages' writer: each a list of (shard, what one append or extend takes).
commits_of_documents = st.lists(
    st.lists(
        st.tuples(st.sampled_from(SHARDS), st.lists(st.binary(max_size=9), max_size=4)), max_size=4
    ),
    max_size=4,
)
commits_of_spans = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(SHARDS),
            st.lists(
                st.tuples(st.sampled_from([0, 1, 1, 2, 5]), st.binary(max_size=5)), max_size=4
            ),
        ),
        max_size=4,
    ),
    max_size=4,
)


def in_shard_order(shards: dict[int, list[Any]]) -> list[Any]:
    return [one for shard in sorted(shards) for one in shards[shard]]


def write_commits(storage: Any, commits: Any, append: Any) -> None:
    """Every second commit is that of a new writer, which goes on behind what it finds."""
    writer = storage.sync_writer().open()
    for number, appends in enumerate(commits):
        for shard, contents in appends:
            append(writer, shard, contents)
        writer.commit()
        if number % 2:
            writer.close()
            writer = storage.sync_writer().open()
    writer.close()


@settings(max_examples=40, deadline=None)
@given(commits=commits_of_documents, many=st.booleans(), data=st.data())
def test_documents_of_the_packages_writer(
    tmp_path_factory: pytest.TempPathFactory, commits: Any, many: bool, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("documents")
    shards: dict[int, list[bytes]] = {}

    def append(writer: Any, shard: int, contents: list[bytes]) -> None:
        shards.setdefault(shard, []).extend(contents)
        if many:
            writer.extend(shard, contents)
        else:
            for document in contents:
                writer.append(shard, document)

    write_commits(document_storage(path), commits, append)
    expected = in_shard_order(shards)
    ours = check_documents(path, expected)
    add_manifest(ours, data.draw(st.integers(0, 5), "parts in a manifest"))
    assert check_documents(path, expected).fingerprint == ours.fingerprint
    shutil.rmtree(path)


@settings(max_examples=40, deadline=None)
@given(commits=commits_of_spans, data=st.data())
def test_spans_of_the_packages_writer(
    tmp_path_factory: pytest.TempPathFactory, commits: Any, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("spans")
    shards: dict[int, list[tuple[int, bytes]]] = {}
    random = np.random.default_rng(0)
    elements: dict[int, list[int]] = {}

    def append(writer: Any, shard: int, contents: list[tuple[int, bytes]]) -> None:
        counts = [count for count, _ in contents]
        stream = random.integers(0, 65536, sum(counts)).astype("<u2")
        writer.append(shard, (stream, counts, [payload for _, payload in contents]))
        shards.setdefault(shard, []).extend(contents)
        elements.setdefault(shard, []).extend(stream.tolist())

    write_commits(span_storage(path), commits, append)
    rows: list[tuple[int, int, bytes, int]] = []
    for shard in sorted(shards):
        for count, payload in shards[shard]:
            start = rows[-1][1] if rows else 0
            rows.append((start, start + count, payload, shard))
    expected = ExpectedSpans(np.array(in_shard_order(elements), "<u2"), rows)
    windows = data.draw(windows_of(len(expected.elements)), "windows")
    ours = check_spans(path, expected, windows)
    add_manifest(ours, data.draw(st.integers(0, 5), "parts in a manifest"))
    assert check_spans(path, expected, windows).fingerprint == ours.fingerprint
    check_samples(path, expected, *data.draw(st.tuples(*[st.integers(1, 9)] * 2), "cut"))
    shutil.rmtree(path)


def add_manifest(ours: IndependentDocuments | IndependentSpans, count: int) -> None:
    """A manifest of the first parts of a dataset, made by hand."""
    HandWriter(ours.path, ours.header).manifest(made_parts(ours)[:count])


@pytest.mark.parametrize("kind", ["document", "stream-with-meta"])
def test_the_packages_writer_names_its_files_as_the_page_says(tmp_path: Path, kind: str) -> None:
    storage = document_storage(tmp_path) if kind == "document" else span_storage(tmp_path)
    content: Any = b"ab" if kind == "document" else (np.zeros(3, "<u2"), [1, 2], [b"", b"x"])
    for _ in range(2):
        with storage.sync_writer() as writer:
            for shard in (0, 1999, 10**9):
                writer.append(shard, content)
    opened: Any = IndependentDocuments if kind == "document" else IndependentSpans
    parts = opened(tmp_path).parts
    assert len(parts) == 6
    for part in parts:
        name = f"{part.shard:07}-{part.number:04}"
        assert part.stem == f"{part.shard // 1000:04}/{name}-{part.token}"
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    records = {Path(f"commits/{part.shard:07}-{part.number:04}.json") for part in parts}
    data = {part.path(Path(), role) for part in parts for role in part.files}
    assert names == {Path("guideloom.json")} | records | data
