"""`DocumentDataset`: each document a sample."""

from __future__ import annotations

from guideloom_format import DocumentStorage, IOReader
from guideloom_format._integers import type_shown
from guideloom_read._document_reader import DocumentReader
from guideloom_read._reader import with_backend


class DocumentDataset:
    """The documents of a storage, each a sample.

    Args:
        storage: a `DocumentStorage`.

    Raises:
        TypeError: a storage of another kind.
    """

    def __init__(self, storage: DocumentStorage) -> None:
        kind = getattr(storage, "kind", None)
        if isinstance(storage, type) or kind != DocumentStorage.kind:
            raise TypeError(
                f"storage is {type_shown(storage)}; expected a DocumentStorage. For the windows "
                "of a stream use StreamDataset"
            )
        self.storage = storage

    def sync_reader(self) -> DocumentReader:
        """A reader of the samples, to be used as a context manager."""
        return DocumentReader(self.storage)

    def at_version(self, version: int | None) -> DocumentDataset:
        """The documents of a manifest version, see `Storage.at_version`."""
        return DocumentDataset(self.storage.at_version(version))

    def with_backend(self, read_interface: IOReader | None) -> DocumentDataset:
        """The same documents, read through another backend; None for the default one."""
        return DocumentDataset(with_backend(self.storage, read_interface))

    def __repr__(self) -> str:
        return f"DocumentDataset({self.storage!r})"
