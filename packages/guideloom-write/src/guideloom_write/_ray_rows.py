"""Rows of Ray blocks as the storage formats take them. For `guideloom_write.ray` alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ray.data.block import Block, BlockAccessor

from guideloom_format import (
    DataError,
    DocumentStorage,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_format._parts import DOCUMENT
from guideloom_write._job import RunningNote
from guideloom_write._owners import REFRESH_AFTER


class Rows:
    """The rows of blocks as the storage format takes them, and the number of the present one."""

    def __init__(
        self, blocks: Iterable[Block], to_data: Callable[[dict[str, Any]], Any], note: RunningNote
    ) -> None:
        self.number = -1
        self._blocks = blocks
        self._to_data = to_data
        self._note = note

    def __iter__(self) -> Iterator[Any]:
        signed = time.monotonic()
        row: dict[str, Any]
        for block in self._blocks:
            for row in BlockAccessor.for_block(block).iter_rows(public_row_format=True):
                self.number += 1
                yield self._to_data(row)
                if time.monotonic() - signed >= REFRESH_AFTER:
                    signed = time.monotonic()
                    self._note.sign_of_life()


def conversion(
    storage: StreamStorage | StreamWithMetaStorage | DocumentStorage,
) -> Callable[[dict[str, Any]], Any]:
    """What `to_data` is when it was left out."""
    if storage.kind == DOCUMENT:
        return _document
    form = storage.storage_format
    if isinstance(form, StreamSpansFormat):
        return _spans if form.stream_format is None else _named_spans
    return _row


def _row(row: dict[str, Any]) -> Any:
    return row


def _document(row: dict[str, Any]) -> Any:
    return row.get("document", row)


def _spans(row: dict[str, Any]) -> Any:
    elements, lengths, payloads = _named_spans(row)
    if "elements" not in elements:
        raise _missing(row, "elements")
    return elements["elements"], lengths, payloads


def _named_spans(row: dict[str, Any]) -> tuple[dict[str, Any], Any, Any]:
    elements = dict(row)
    try:
        return elements, elements.pop("run_lengths"), elements.pop("payloads")
    except KeyError as error:
        raise _missing(row, error.args[0]) from None


def _missing(row: dict[str, Any], column: str) -> DataError:
    return DataError(
        f"a row has the columns {sorted(row)}, not {column!r}; give it that, or give to_data, a "
        "function from a row to (elements, run_lengths, payloads)"
    )
