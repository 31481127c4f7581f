"""Documents of which each says where it belongs, and what a writer does with them.

Document i of shard s begins with the text ``s/i;`` again and again, cut to a size that follows
from both, so a reader checks any byte without a second copy. Some documents are empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from format.document_cases import Plain
from guideloom_format import DatasetNotFoundError, DocumentBytesFormat, DocumentStorage
from guideloom_write import DocumentWriter
from guideloom_write._files import PosixFiles
from write.faulty_files import Watched
from write.known_content import Known


def storage(directory: Path) -> DocumentStorage:
    return DocumentStorage(directory, DocumentBytesFormat())


def writer_at(directory: Path) -> DocumentWriter:
    return DocumentWriter(storage(directory), files=Watched())


@dataclass(frozen=True)
class KnownDocuments(Known[DocumentWriter]):
    """Documents of these sizes in turn, appended in this way: "append", "extend" or "both"."""

    sizes: Sequence[int] = (0, 3, 200, 1, 40, 0, 17)
    how: str = "both"

    roles = ("documents", "ends")

    def writer(self, directory: Path, files: PosixFiles) -> DocumentWriter:
        return DocumentWriter(storage(directory), files=files)

    def document(self, shard: int, index: int) -> bytes:
        size = self.sizes[(shard + index) % len(self.sizes)]
        text = b"%d/%d;" % (shard, index)
        return (text * (size // len(text) + 1))[:size]

    def documents(self, shard: int, start: int, stop: int) -> list[bytes]:
        return [self.document(shard, index) for index in range(start, stop)]

    def append(self, writer: DocumentWriter, shard: int, start: int, stop: int) -> None:
        """Append the documents of the shard from `start` to `stop`."""
        middle = {"append": stop, "extend": start, "both": (start + stop) // 2}[self.how]
        for document in self.documents(shard, start, middle):
            writer.append(shard, document)
        writer.extend(shard, iter(self.documents(shard, middle, stop)))

    def visible(self, directory: Path) -> dict[int, int] | None:
        """Documents that a reader finds in each shard, all of them checked; None: no dataset."""
        try:
            with DocumentStorage(directory, Plain()).sync_reader() as reader:
                found = reader[:]
        except DatasetNotFoundError:
            return None
        lengths: dict[int, int] = {}
        for shard, run in itertools.groupby(found, key=lambda sample: sample[1]):
            assert shard > max(lengths, default=-1), "shards out of order"
            documents = [document for document, _ in run]
            assert documents == self.documents(shard, 0, len(documents)), f"shard {shard} is wrong"
            lengths[shard] = len(documents)
        return lengths
