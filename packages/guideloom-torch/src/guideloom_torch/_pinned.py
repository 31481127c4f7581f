"""The dataset of a loader, as it was when it was opened first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from guideloom_format import MismatchError
from guideloom_read import DocumentDataset, DocumentReader, StreamDataset, StreamDatasetReader
from guideloom_read.io import ObservedIO, ReadLog
from guideloom_torch._options import Order
from guideloom_torch._state import ALGORITHM, pinned_version, read_state

AnyReader = StreamDatasetReader | DocumentReader
Identity = dict[str, int | str | bool]


class PinnedDataset:
    """Opens the dataset when it is needed, and sees to it that it stays what it was.

    Args:
        dataset: the samples.
        order: of them.

    Attributes:
        reads: what was read of it in this process, and is being read.
        version: of the manifest that it stays with; None before it is opened, or if there is none.
    """

    def __init__(self, dataset: StreamDataset | DocumentDataset, order: Order) -> None:
        self._dataset = dataset
        self._order = order
        self.reads = ReadLog()
        self._reader: AnyReader | None = None
        self._identity: Identity | None = None
        self.version: int | None = None

    def reader(self) -> AnyReader:
        """The reader, opened.

        Raises:
            MismatchError: the dataset is not what it was.
        """
        if self._reader is None:
            reader = self._reader_at(self.version)
            identity = self._identity_of(reader)
            if self._identity not in (None, identity):
                reader.close()
                raise MismatchError(
                    "the dataset has changed since this loader opened it first, and the loader's "
                    "position belongs to what it was; build a new loader. A loader over a "
                    "consolidated dataset stays with its version"
                )
            self._identity = identity
            self.version = reader.version
            self._reader = reader
        return self._reader

    def identity(self) -> Identity:
        """What determines the order; as it was when the dataset was first opened."""
        if self._identity is None:
            self.reader()
        return dict(self._identity or {})

    def close(self) -> None:
        """Close the reader; the next use opens it again."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def elsewhere(self) -> PinnedDataset:
        """The same dataset for another process; its `reader` raises if it is not the same there."""
        there = PinnedDataset(self._dataset, self._order)
        there.version, there._identity = self.version, self.identity()
        return there

    def place_of(
        self, state: Mapping[str, Any], before_moving: Callable[[], None]
    ) -> tuple[int, int]:
        """(epoch, position) of a state; goes to the manifest version that it pins, if it must.

        Args:
            state: of a loader.
            before_moving: is called when all is found right, before anything changes.
        """
        version = pinned_version(state, self.identity())
        if version is None or self._dataset.storage.version is not None:
            at = read_state(state, self.identity(), len(self.reader()))
            before_moving()
            return at
        reader = self._reader_at(version)
        identity = self._identity_of(reader)
        try:
            at = read_state(state, identity, len(reader))
            before_moving()
        except BaseException:
            reader.close()
            raise
        self.close()
        self._reader, self._identity, self.version = reader, identity, version
        return at

    def _reader_at(self, version: int | None) -> AnyReader:
        """A reader of the dataset, at a manifest version or as it is."""
        dataset = self._dataset if version is None else self._dataset.at_version(version)
        backend = ObservedIO(dataset.storage.read_interface, self.reads)
        reader: AnyReader = dataset.with_backend(backend).sync_reader().open()
        return reader

    def _identity_of(self, reader: AnyReader) -> Identity:
        return {
            **reader.identity(),
            "samples": len(reader),
            "algorithm": ALGORITHM,
            "shuffle": self._order.shuffle,
            "shuffle_seed": self._order.seed,
        }
