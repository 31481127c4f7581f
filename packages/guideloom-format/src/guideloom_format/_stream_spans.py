"""`StreamSpansFormat`: streams whose spans carry payloads, without writing a class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from guideloom_format._columns import column
from guideloom_format._document_formats import DocumentBytesFormat
from guideloom_format._documents import split
from guideloom_format._dtypes import storable_dtype
from guideloom_format._errors import DataError
from guideloom_format._integers import shown
from guideloom_format._parts import STREAM_WITH_META
from guideloom_format._stream_numpy import StreamNumpyFormat
from guideloom_format._types import DocumentStorageFormat

NOT_LISTS = (str, bytes, bytearray, memoryview, Mapping, AbstractSet)


def owned(packed: Any) -> Any:
    """A buffer that stays as it is when the one who gave it uses its memory again."""
    if isinstance(packed, bytearray | memoryview):
        return bytes(packed)
    return packed.copy() if isinstance(packed, np.ndarray) else packed


class SpanWindow(NamedTuple):
    """A window of a stream and the spans that it touches.

    ::

        stream       the  cat  sat  the  dog
        span_index     0    0    0    1    1
        payloads     ["a fable", "another"]          each span once, in order

    Attributes:
        stream: the elements, (n,); for elements with fields, a mapping of field to array.
        span_index: int64 (n,), for each element the number of its span in `payloads`.
        payloads: one for each span that has an element in the window.
        shards: for each payload, the shard that it lies in.
    """

    stream: Any
    span_index: NDArray[np.int64]
    payloads: list[Any]
    shards: Sequence[int]


class StreamSpansFormat:
    """Streams whose spans carry payloads: document ids, concepts, labels.

    ::

        StreamSpansFormat("<u2", DocumentJSONFormat())
        append  (tokens, run_lengths, payloads)
                  tokens       (n,) integers
                  run_lengths  elements of each span, one behind the other; their sum is n
                  payloads     one for each span, as the payload format takes them
        sample  SpanWindow(stream, span_index, payloads, shards)

    Args:
        stream_dtype: of an element. With named fields, elements go in and come out as with
            `StreamNumpyFormat`: as a mapping of field to array.
        payload_format: a document format.

    Raises:
        TypeError: the dtype is not stored, or the payload format lacks a method.
    """

    name = "stream-spans"
    storage_kind = STREAM_WITH_META

    def __init__(self, stream_dtype: DTypeLike, payload_format: DocumentStorageFormat) -> None:
        for method in ("pack", "unpack"):
            if not callable(getattr(payload_format, method, None)) or isinstance(
                payload_format, type
            ):
                raise TypeError(
                    f"payload_format is {payload_format!r}; expected a document format with pack "
                    "and unpack, such as DocumentJSONFormat()"
                )
        if hasattr(payload_format, "stream_dtype"):
            raise TypeError(
                f"payload_format is {payload_format!r}, a format of streams; expected a document "
                "format, such as DocumentJSONFormat()"
            )
        if stream_dtype is None:
            raise TypeError("stream_dtype is None; expected a dtype")
        dtype = np.dtype(stream_dtype)
        self.stream_format = StreamNumpyFormat(dtype) if dtype.names else None
        self.stream_dtype: np.dtype[Any] = (
            self.stream_format.stream_dtype if self.stream_format else storable_dtype(dtype)
        )
        self.payload_format = payload_format

    def pack(
        self, data: tuple[Any, Iterable[int], Iterable[Any]]
    ) -> tuple[NDArray[Any], Any, list[Any]]:
        """Elements, lengths of the runs, and the packed payloads.

        Raises:
            DataError: not these three, or values that the formats cannot hold.
        """
        if not isinstance(data, tuple) or len(data) != 3:
            raise DataError(
                f"StreamSpansFormat got {shown(data)}; expected a tuple (elements, run_lengths, "
                "payloads)"
            )
        stream, lengths, payloads = data
        if self.stream_format is not None:
            elements = self.stream_format.pack(stream)
        else:
            elements = column("the stream", stream, self.stream_dtype)
        if isinstance(payloads, NOT_LISTS) or not hasattr(payloads, "__iter__"):
            raise DataError(
                f"StreamSpansFormat got payloads of type {type(payloads).__name__}; expected a "
                "list with a payload for each span"
            )
        pack = self.payload_format.pack
        if hasattr(payloads, "__next__"):  # which may use one buffer again and again
            return elements, lengths, [owned(pack(payload)) for payload in payloads]
        return elements, lengths, [pack(payload) for payload in payloads]

    def unpack(
        self,
        stream: NDArray[Any],
        document_shard: Sequence[int],
        document_index: NDArray[np.int64],
        document_data: Sequence[Any],
    ) -> SpanWindow:
        """The sample for a window."""
        if type(self.payload_format) is DocumentBytesFormat:
            payloads = list(document_data)
        else:
            unpack = self.payload_format.unpack
            payloads = [
                unpack(memoryview(bytearray(payload)), shard)
                for payload, shard in zip(document_data, document_shard, strict=True)
            ]
        return SpanWindow(self.unpack_batch(stream), document_index, payloads, document_shard)

    def unpack_batch(self, stream: NDArray[Any]) -> Any:
        """The elements of windows of any shape, for example (batch, sequence_length)."""
        return stream if self.stream_format is None else self.stream_format.unpack_batch(stream)

    def unpack_payloads(self, payloads: Any) -> list[Any]:
        """The decoded payloads of a batch.

        Args:
            payloads: what `gather`, or the loader, gives as ``batch.payloads``.
        """
        stored = split(np.asarray(payloads.values), np.asarray(payloads.offsets))
        return [self.payload_format.unpack(memoryview(bytearray(one)), -1) for one in stored]

    def __repr__(self) -> str:
        stream = self.stream_dtype if self.stream_format is None else self.stream_format.dtype
        return f"StreamSpansFormat({stream!r}, {self.payload_format!r})"
