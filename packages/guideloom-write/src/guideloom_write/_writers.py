"""The writers of the three kinds of data: `ShardWriter`, and what is particular to each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from guideloom_format import Header, _names
from guideloom_format._integers import as_index
from guideloom_format._stream_spans import NOT_LISTS
from guideloom_write._packing import DocumentPacker, ElementPacker, SpanPacker
from guideloom_write._part_kinds import DocumentPart, SpanPart, StreamPart
from guideloom_write._shard_writer import ShardWriter

_MOST_BYTES = 1 << 20  # held until they are written together
_MOST_DOCUMENTS = 4096
_END = object()


class StreamWriter(ShardWriter):
    """Writes shards of a stream."""

    _packer_of = ElementPacker
    _part_of = StreamPart
    _files_of_part = 2


class StreamWithMetaWriter(ShardWriter):
    """Writes shards of a stream whose spans carry payloads."""

    _packer_of = SpanPacker
    _part_of = SpanPart
    _files_of_part = 6


class DocumentWriter(ShardWriter):
    """Writes shards of documents; `append` takes one document, `extend` many."""

    _packer_of = DocumentPacker
    _part_of = DocumentPart
    _files_of_part = 4

    def extend(self, shard: int, documents: Iterable[Any]) -> None:
        """Append many documents, which costs less than one `append` for each.

        They are held back to be written together: the iterable must not call the writer. If one of
        them cannot be had or held, those before it were appended; `length` says how many.

        Raises:
            DataError: the storage format cannot hold one of them.
            WriteError, WriterStateError: see `append`.
        """
        header = self._usable()
        shard = as_index("shard", shard, 0, _names.MAX_SHARD)
        if isinstance(documents, NOT_LISTS):
            raise TypeError(
                f"extend got {type(documents).__name__}; expected an iterable of documents. Use "
                "append for one document"
            )
        packer: DocumentPacker = self._packer  # type: ignore[assignment]
        together: list[bytes] = []
        size = 0
        iterator = iter(documents)
        k = 0
        while True:
            try:
                document = next(iterator, _END)
                if document is _END:
                    break
                packed = packer.pack(document)
            except BaseException as error:
                error.add_note(f"at document {k} of those given to extend")
                self._put_together(header, shard, together)
                raise
            k += 1
            together.append(packed if type(packed) is bytes else bytes(packed))
            size += len(packed)
            if size >= _MOST_BYTES or len(together) >= _MOST_DOCUMENTS:
                self._put_together(header, shard, together)
                together, size = [], 0
        self._put_together(header, shard, together)

    def _put_together(self, header: Header, shard: int, documents: list[bytes]) -> None:
        if self._header is not header:  # the storage format and the iterable are the user's code
            self._usable()
        if documents:
            self._put(header, shard, "extend", documents)
