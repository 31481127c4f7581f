"""What the documentation of `DocumentWriter` promises."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from format.document_cases import Plain, stored, without_address
from guideloom_format import DataError, DocumentBytesFormat, DocumentStorage, WriterStateError
from guideloom_read import verify
from guideloom_write import DocumentWriter
from write.call_cases import check_calls, each_wrong_shard
from write.faulty_files import Watched
from write.known_content import all_files, garbage
from write.known_documents import KnownDocuments, storage, writer_at

KNOWN = KnownDocuments()
BYTES = DocumentBytesFormat()


def test_append_extend_commit_and_length(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x") as writer:
        assert writer.length(0) == 0
        KNOWN.append(writer, 0, 0, 10)
        KNOWN.append(writer, 5, 0, 3)
        KNOWN.append(writer, 0, 10, 12)
        assert [writer.length(shard) for shard in (0, 5, 1)] == [12, 3, 0]
        assert repr(writer).endswith("not committed yet: {0: 12, 5: 3}")
        assert KNOWN.visible(tmp_path / "x") == {}, "visible before the commit"
        writer.commit()
        assert [writer.length(shard) for shard in (0, 5, 1)] == [12, 3, 0]
        assert KNOWN.visible(tmp_path / "x") == {0: 12, 5: 3}
        KNOWN.append(writer, 5, 3, 4)
    assert KNOWN.visible(tmp_path / "x") == {0: 12, 5: 4}
    assert garbage(tmp_path / "x") == set()
    assert verify(tmp_path / "x").parts == 3


def test_a_restart_goes_on_from_length(tmp_path: Path) -> None:
    for total in (3, 3, 50, 9000):
        with writer_at(tmp_path / "x") as writer:
            KNOWN.append(writer, 2, writer.length(2), total)
            assert writer.length(2) == total
        assert KNOWN.visible(tmp_path / "x") == {2: total}
    assert verify(tmp_path / "x").parts == 3


def test_documents_without_bytes_make_a_part(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x") as writer:
        writer.append(0, b"")
        writer.extend(1, [b"", b""])
        writer.extend(2, [])
        assert [writer.length(shard) for shard in (0, 1, 2)] == [1, 2, 0]
    assert stored(tmp_path / "x", BYTES) == [b""] * 3
    assert verify(tmp_path / "x").parts == 2
    assert {path.stat().st_size for path in (tmp_path / "x").rglob("*.documents*")} == {0}


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 8192, 10_000])
def test_extend_takes_any_number(count: int, tmp_path: Path) -> None:
    """Also more than what is held until it is written together."""
    known = KnownDocuments(sizes=(0, 1, 2), how="extend")
    with writer_at(tmp_path / "x") as writer:
        known.append(writer, 1, 0, count)
        writer.append(0, b"other")
        known.append(writer, 1, count, count + 3)
        assert writer.length(1) == count + 3
    with DocumentStorage(tmp_path / "x", BYTES).sync_reader() as reader:
        assert reader[:] == [b"other", *known.documents(1, 0, count + 3)]
    assert verify(tmp_path / "x").clean


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 2**20 + 1, 5 * 2**20])
def test_extend_takes_any_size(size: int, tmp_path: Path) -> None:
    known = KnownDocuments(sizes=(size, 3, 0), how="extend")
    with writer_at(tmp_path / "x") as writer:
        known.append(writer, 1, 0, 7)
    assert known.visible(tmp_path / "x") == {1: 7}
    assert verify(tmp_path / "x").clean


@pytest.mark.parametrize(
    "make",
    [list, tuple, iter, lambda documents: (document for document in documents),
     lambda documents: dict(enumerate(documents)).values(),
     lambda documents: np.array(documents, object)],
)  # fmt: skip
def test_extend_takes_any_iterable(make: Callable[[list[bytes]], Any], tmp_path: Path) -> None:
    with writer_at(tmp_path / "x") as writer:
        writer.extend(0, make([b"one", b"", b"three"]))
    assert stored(tmp_path / "x", BYTES) == [b"one", b"", b"three"]


@pytest.mark.parametrize(
    "documents",
    [b"bytes", "text", bytearray(b"x"), memoryview(b"x"), {b"a": 1}, {b"a"}],
    ids=without_address,
)
def test_what_extend_does_not_take(documents: Any, tmp_path: Path) -> None:
    """One document is not a list of its bytes, and a set has no order."""
    with writer_at(tmp_path / "x") as writer:
        with pytest.raises(
            TypeError,
            match=f"^extend got {type(documents).__name__}; expected an iterable of documents. Use "
            "append for one document$",
        ):
            writer.extend(0, documents)
        for number in (None, 7):
            with pytest.raises(TypeError, match="not iterable"):
                writer.extend(0, number)  # type: ignore[arg-type]
        assert writer.length(0) == 0


@each_wrong_shard
def test_shard_numbers(shard: Any, kind: type[Exception], text: str, tmp_path: Path) -> None:
    """Refused whether or not the shard that it equals is being written, and before any document."""
    never = iter([b"never asked for"])
    with writer_at(tmp_path / "x") as writer:
        for _ in range(2):
            for call in (
                lambda: writer.append(shard, b"x"),
                lambda: writer.extend(shard, never),
                lambda: writer.extend(shard, []),
                lambda: writer.length(shard),
            ):
                with pytest.raises(kind, match=text):
                    call()
            KNOWN.append(writer, 1, writer.length(1), writer.length(1) + 2)
    assert next(never)
    assert KNOWN.visible(tmp_path / "x") == {1: 4}


def failing_after(count: int, error: BaseException) -> Iterator[bytes]:
    yield from KNOWN.documents(3, 0, count)
    raise error


@pytest.mark.parametrize("count", [0, 1, 5, 4095, 4096, 4097, 9000])
@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt()], ids=repr)
def test_an_error_of_the_iterable_keeps_what_came_before(
    error: BaseException, count: int, tmp_path: Path
) -> None:
    with writer_at(tmp_path / "x") as writer:
        with pytest.raises(type(error)) as raised:
            writer.extend(3, failing_after(count, error))
        assert f"at document {count} of those given to extend" in raised.value.__notes__
        assert writer.length(3) == count
        KNOWN.append(writer, 3, count, count + 2)
    assert KNOWN.visible(tmp_path / "x") == {3: count + 2}


@pytest.mark.parametrize("count", [0, 1, 5, 4095, 4096, 4097, 9000])
def test_a_document_that_is_refused_keeps_what_came_before(count: int, tmp_path: Path) -> None:
    documents: list[Any] = [*KNOWN.documents(3, 0, count), None, b"never"]
    with writer_at(tmp_path / "x") as writer:
        with pytest.raises(DataError, match="got NoneType") as raised:
            writer.extend(3, documents)
        assert raised.value.__notes__ == [f"at document {count} of those given to extend"]
        assert writer.length(3) == count
        KNOWN.append(writer, 3, count, count + 2)
    assert KNOWN.visible(tmp_path / "x") == {3: count + 2}


def test_a_stop_iteration_of_the_format_is_an_error_like_any_other(tmp_path: Path) -> None:
    """It must not be taken for the end of the documents."""

    class First(Plain):
        def pack(self, data: list[bytes]) -> Any:
            return next(iter(data))

    with DocumentWriter(DocumentStorage(tmp_path / "x", First()), files=Watched()) as writer:
        with pytest.raises(StopIteration):
            writer.append(0, [])
        with pytest.raises((StopIteration, RuntimeError)):
            writer.extend(0, [[b"1"], [], [b"3"]])
        assert writer.length(0) == 1


def test_an_iterable_may_use_the_writer_itself(tmp_path: Path) -> None:
    """Between two documents the writer is at rest; what is given to extend is held back a while."""

    def documents() -> Iterator[bytes]:
        yield b"1"
        writer.append(1, b"of shard 1")
        yield b"2"
        writer.commit()
        yield b"3"

    with writer_at(tmp_path / "x") as writer:
        writer.extend(0, documents())
        assert (writer.length(0), writer.length(1)) == (3, 1)
    assert stored(tmp_path / "x", BYTES) == [b"1", b"2", b"3", b"of shard 1"]


def test_an_iterable_that_closes_the_writer(tmp_path: Path) -> None:
    def documents() -> Iterator[bytes]:
        yield b"1"
        writer.close()
        yield b"2"

    writer = writer_at(tmp_path / "x").open()
    with pytest.raises(WriterStateError, match="the writer is not open"):
        writer.extend(0, documents())
    writer.open().commit()
    assert stored(tmp_path / "x", BYTES) == []
    assert garbage(tmp_path / "x") == set()


def test_rollback_and_close_forget_what_was_not_committed(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x") as writer:
        KNOWN.append(writer, 0, 0, 10)
        writer.commit()
        committed = all_files(tmp_path / "x")
        KNOWN.append(writer, 0, 10, 99)
        KNOWN.append(writer, 1, 0, 5000)
        writer.rollback()
        assert all_files(tmp_path / "x") == committed | {"owners/0000001.json"}
        assert (writer.length(0), writer.length(1)) == (10, 0)
        KNOWN.append(writer, 0, 10, 15)
        writer.commit()
        KNOWN.append(writer, 1, 0, 9)
        writer.close()
        for call in (
            lambda: writer.append(0, b""),
            lambda: writer.extend(0, []),
            lambda: writer.length(0),
            writer.commit,
        ):
            with pytest.raises(WriterStateError, match="the writer is not open; use it in a with"):
                call()
    assert KNOWN.visible(tmp_path / "x") == {0: 15}
    assert garbage(tmp_path / "x") == set()


def test_few_shards_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guideloom_write._shard_writer.MOST_OPEN_PARTS", 3)
    files = Watched()
    lengths = dict.fromkeys(range(11), 0)
    rng = np.random.default_rng(0)
    with DocumentWriter(storage(tmp_path / "x"), files=files) as writer:
        for shard in rng.integers(0, 11, 200).tolist():
            count = int(rng.integers(0, 30))
            KNOWN.append(writer, shard, lengths[shard], lengths[shard] + count)
            lengths[shard] += count
            assert files.open_count() <= 4 * 3
    assert KNOWN.visible(tmp_path / "x") == lengths
    assert verify(tmp_path / "x").clean


def test_a_call_in_the_middle_of_a_call_is_refused(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "x").open()
    with writer._busy:
        with pytest.raises(WriterStateError, match="another thread is in a call"):
            writer.append(0, b"x")
        with pytest.raises(WriterStateError, match="another thread is in a call"):
            writer.extend(0, [b"x"])
    writer.extend(0, [b"good"])
    writer.commit()
    writer.close()
    assert stored(tmp_path / "x", BYTES) == [b"good"]


def test_threads_at_once_are_named_or_harmless(tmp_path: Path) -> None:
    """Whatever gets through, documents stay whole and ends right."""
    errors: list[Exception] = []
    documents = [bytes([k]) * k for k in range(1, 60)]

    def work() -> None:
        for k in range(200):
            try:
                if k % 2:
                    writer.append(0, documents[k % 59])
                else:
                    writer.extend(0, documents)
            except WriterStateError as error:
                errors.append(error)

    with writer_at(tmp_path / "x") as writer:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all("another thread is in a call of this writer" in str(error) for error in errors)
    assert set(stored(tmp_path / "x", BYTES)) <= set(documents)
    assert verify(tmp_path / "x").clean


def test_a_forked_process_cannot_touch_its_parents_parts(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x") as writer:
        KNOWN.append(writer, 0, 0, 10)
        child = os.fork()
        if not child:
            try:
                writer.extend(0, [b"x"])
            except WriterStateError:
                writer.close()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        KNOWN.append(writer, 0, 10, 20)
    assert KNOWN.visible(tmp_path / "x") == {0: 20}


actions = st.one_of(
    st.tuples(
        st.sampled_from(["append", "extend", "both"]),
        st.integers(0, 2),
        st.sampled_from([0, 1, 3, 50, 5000]),
    ),
    st.tuples(st.sampled_from(["commit", "rollback", "reopen", "fail"])),
)
numbers = itertools.count()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(script=st.lists(actions, max_size=12))
def test_any_sequence_of_calls_against_lists(script: list[tuple[Any, ...]], tmp_path: Path) -> None:
    """Two dicts say what is committed and what is pending; the writer agrees after each call."""
    check_calls(
        lambda how: KnownDocuments(how=how),
        script,
        shards=3,
        directory=tmp_path / str(next(numbers)),
    )
