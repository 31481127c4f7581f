"""What a release wrote of documents and spans stays readable; see `tests/golden/README.md`."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import guideloom
from format.independent_documents import IndependentDocuments
from format.independent_spans import IndependentSpans
from guideloom import StreamDataset
from guideloom_read import DocumentReader, StreamWithMetaReader, verify
from guideloom_read.io import MmapIO, PosixPreadIO, SeekIO

GOLDEN = Path(__file__).parents[1] / "golden"
DOCUMENTS = GOLDEN / "document-1.0"
DOCUMENTS_FINGERPRINT = "a60f051048ede0d25c6869632d3276e0386019d3b2e7cbc2d34582fc2d5087d2"
DOCUMENTS_MANIFEST = "edafd9a4270ad0a00672b47b8cffdf81f9dca6db3cd8dbc0c410c18285ed997e"
DOCUMENT_PARTS = [(0, 0, 40), (3, 0, 30), (3, 1, 1), (8, 0, 29)]
SPANS = GOLDEN / "stream-with-meta-1.0"
SPANS_FINGERPRINT = "52f200e9ce52737480c390a1e5482c872d5ac30a4d1be0c4f618dead54df4ff4"
SPANS_MANIFEST = "3cb118150acd72b43b90007919b1c32459fa571cdaf88143e79e4f3b0219b939"
SPAN_PARTS = [(0, 0, 77), (2, 0, 43), (2, 1, 36), (5, 0, 81)]
BACKENDS = [PosixPreadIO(), MmapIO(), SeekIO()]


def document(i: int) -> bytes:
    return bytes((i * i + k) % 251 for k in range(37 * i % 60 if i % 7 else 0))


def span_length(s: int) -> int:
    return 5 * s % 9


def payload(s: int) -> dict[str, Any]:
    return {"span": s, "tags": [f"t{s % k}" for k in range(1, s % 4 + 1)]}


def span_of_element() -> list[int]:
    return [s for s in range(60) for _ in range(span_length(s))]


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
def test_the_reader_reads_the_golden_documents(backend: Any) -> None:
    reader: Any = guideloom.open(DOCUMENTS, None, backend).sync_reader()
    assert isinstance(reader, DocumentReader)
    with reader:
        assert reader.fingerprint == DOCUMENTS_FINGERPRINT
        assert list(reader) == [document(i) for i in range(100)]
        ragged = reader.gather(range(99, -1, -1))
        assert ragged.values.tobytes() == b"".join(document(i) for i in range(99, -1, -1))


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
def test_the_reader_reads_the_golden_spans(backend: Any) -> None:
    storage: Any = guideloom.open(SPANS, None, backend)
    span_of = span_of_element()
    with storage.sync_reader() as reader:
        assert isinstance(reader, StreamWithMetaReader)
        assert reader.fingerprint == SPANS_FINGERPRINT
        assert (len(reader), reader.span_count) == (237, 60)
        borders = [0, 1, 5, 76, 77, 78, 119, 120, 121, 155, 156, 157, 236, 237]
        for start in borders:
            for stop in [border for border in borders if border >= start]:
                window = reader.read(start, stop - start)
                at = np.arange(start, stop)
                assert np.array_equal(window.stream["token"], 7919 * at % 65521)
                assert np.array_equal(window.stream["weight"], (at / 8).astype("<f4"))
                spans = [payload(s) for s in dict.fromkeys(span_of[start:stop])]
                assert window.payloads == spans
                found = [window.payloads[k]["span"] for k in window.span_index]
                assert found == span_of[start:stop]
    with StreamDataset(storage, 20, 7).sync_reader() as samples:
        ids = np.arange(len(samples))
        expected = [span_of[7 * k : 7 * k + 20] for k in ids]
        assert samples.gather(ids).document_ids().tolist() == expected


def test_the_independent_readers_read_the_golden_datasets() -> None:
    documents = IndependentDocuments(DOCUMENTS)
    assert documents.fingerprint == DOCUMENTS_FINGERPRINT
    assert [(p.shard, p.number, p.length) for p in documents.parts] == DOCUMENT_PARTS
    assert [documents.read(i) for i in range(100)] == [document(i) for i in range(100)]
    spans = IndependentSpans(SPANS)
    assert spans.fingerprint == SPANS_FINGERPRINT
    assert [(p.shard, p.number, p.length) for p in spans.parts] == SPAN_PARTS
    for s in range(60):
        low, high, stored, _ = spans.span(s)
        assert high - low == span_length(s)
        assert json.loads(stored) == payload(s)


@pytest.mark.parametrize(
    "golden, manifest_print", [(DOCUMENTS, DOCUMENTS_MANIFEST), (SPANS, SPANS_MANIFEST)]
)
def test_manifest_and_records_say_the_same(
    tmp_path: Path, golden: Path, manifest_print: str
) -> None:
    """Without the manifest the records say all; without the records the manifest says its half."""
    assert verify(golden).clean
    manifest = (golden / "manifest.json").read_text(encoding="ascii")
    assert (golden / "manifests" / "00000001.json").read_text(encoding="ascii") == manifest
    assert f'"fingerprint":"{manifest_print}"' in manifest.replace(" ", "")
    prints = []
    for name, left_out in (("records", "manifest.json"), ("manifest", "commits")):
        copy = Path(shutil.copytree(golden, tmp_path / name))
        target = copy / left_out
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        with guideloom.open(copy).sync_reader() as reader:
            prints.append(reader.fingerprint)
    with guideloom.open(golden).sync_reader() as reader:
        assert prints == [reader.fingerprint, manifest_print]


@pytest.mark.parametrize("golden", [DOCUMENTS, SPANS])
def test_this_writer_goes_on_behind_the_golden_datasets(tmp_path: Path, golden: Path) -> None:
    copy = Path(shutil.copytree(golden, tmp_path / "copy"))
    storage: Any = guideloom.open(copy)
    more = (
        b"more"
        if golden == DOCUMENTS
        else ({"token": [1], "weight": np.ones(1, "<f4")}, [1], ["more"])
    )
    with storage.sync_reader() as reader:
        before = len(reader)
    with storage.sync_writer() as writer:
        last = 29 if golden == DOCUMENTS else 81
        assert writer.length(8 if golden == DOCUMENTS else 5) == last
        writer.append(8 if golden == DOCUMENTS else 5, more)
    with storage.sync_reader() as reader:
        assert len(reader) == before + 1
    assert verify(copy).clean
    assert {
        p.name: p.read_bytes()
        for p in copy.glob("data/*/*")
        if (golden / p.relative_to(copy)).exists()
    } == {p.name: p.read_bytes() for p in golden.glob("data/*/*")}


@pytest.mark.parametrize("golden", [DOCUMENTS, SPANS])
def test_golden_records_carry_no_name_of_a_machine(golden: Path) -> None:
    records = sorted((golden / "commits").iterdir())
    assert len(records) == 4
    for record in records:
        assert '"host": "golden",\n  "pid": 1234,' in record.read_text(encoding="ascii")
