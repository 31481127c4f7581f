"""`StatefulDataLoader`: batches for training, resumable at the position that was delivered."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack

import torch

from guideloom_format import (
    DocumentStorage,
    EpochPlan,
    MismatchError,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_format._integers import as_index
from guideloom_format._storage import Storage
from guideloom_read import DocumentDataset, DocumentReader, StreamDataset, StreamDatasetReader
from guideloom_torch._collate import load_function
from guideloom_torch._pipeline import batches
from guideloom_torch._state import ALGORITHM, make_state, pinned_version, read_state


class LoaderOptions(TypedDict, total=False):
    """The keyword arguments of `StatefulDataLoader`, described there."""

    local_batch_size: int
    rank: int | None
    world_size: int | None
    num_workers: int
    shuffle: bool
    shuffle_seed: int | None
    drop_last: bool
    prefetch: int
    pad_to: int | Literal["longest"] | None
    pad_value: float


class StatefulDataLoader:
    """Delivers the batches of one rank, epoch after epoch, and remembers how far training is.

    The order of all samples is a function of seed and epoch; step s takes the next
    ``local_batch_size * world_size`` of them, dealt to the ranks in turn (see `EpochPlan`).

    *Position.* ``iter(loader)`` goes on where the last batch left off: after a loop that ran to
    the end, with the next epoch; after a ``break``, or a `load_state_dict`, with the next batch of
    the same epoch. Only the newest iterator is valid.

    *State.* `state_dict` is the position delivered, whatever was prefetched: a few integers that
    are the same on every rank. With the last batch of an epoch it moves to the start of the next
    epoch. World size, batch size, workers and prefetching may differ when a state is loaded: the
    same global order goes on.

    Args:
        dataset: the samples.
        collate_fn: makes a batch of a list of samples; runs in the workers. The list is empty on a
            rank for which nothing is left (see `drop_last`). When left out: the windows of a stream
            are stacked; with metadata, a `SpanBatch` of tensors; documents come as a list, arrays
            as tensors, or padded (see `pad_to`). A batch goes from files to tensors without Python
            code per sample if the storage format of the stream has `unpack_batch` (the built-in
            ones have), and through torch's `default_collate` if not.
        local_batch_size: samples per step on this rank.
        rank: of this process. Left out, it comes from `torch.distributed` if that is initialized,
            and is 0 otherwise, in a job of one process.
        world_size: number of processes; left out, as for `rank`.
        num_workers: threads that load batches; 0 loads in the thread that iterates.
        shuffle: whether the samples come in `feistel-1` order, another one every epoch.
        shuffle_seed: any non-negative integer, the same on all ranks; 0 when left out.
        drop_last: leave out the samples of an incomplete last global batch. Otherwise the last
            step is shorter, and empty on a rank for which nothing is left, so that all ranks have
            as many steps.
        prefetch: batches held ready ahead of the training loop.
        pad_to: for documents that are arrays of numbers: make a `Padded` of tensors of each batch,
            with rows of this many values, or, with ``"longest"``, as many as the batch's longest
            document has. A document longer than `pad_to` is an error.
            The stored values are padded; `unpack` of the storage format is not called.
        pad_value: what stands behind a document.

    Raises:
        TypeError, ValueError: an argument outside its interval, named.
        DatasetError, MismatchError: when the dataset is opened, at the first use.
    """

    def __init__(
        self,
        dataset: StreamDataset | DocumentDataset,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        local_batch_size: int = 1,
        rank: int | None = None,
        world_size: int | None = None,
        num_workers: int = 0,
        shuffle: bool = False,
        shuffle_seed: int | None = None,
        drop_last: bool = True,
        prefetch: int = 0,
        pad_to: int | Literal["longest"] | None = None,
        pad_value: float = 0,
    ) -> None:
        if not hasattr(dataset, "sync_reader") or hasattr(dataset, "sync_writer"):
            raise TypeError(
                f"dataset is {type(dataset).__name__}; expected a dataset such as StreamDataset, "
                "or use StatefulDataLoader.from_storage"
            )
        self.dataset = dataset
        self._padding = {} if pad_to is None else {"pad_to": pad_to, "pad_value": pad_value}
        self._load_function = load_function(dataset, collate_fn, pad_to, pad_value)
        found_rank, found_world_size = (0, 1)
        if rank is None or world_size is None:
            found_rank, found_world_size = _distributed()
        self._options: dict[str, Any] = {
            "seed": as_index("shuffle_seed", 0 if shuffle_seed is None else shuffle_seed, 0, None),
            "shuffle": bool(shuffle),
            "rank": found_rank if rank is None else rank,
            "world_size": found_world_size if world_size is None else world_size,
            "local_batch_size": local_batch_size,
            "drop_last": bool(drop_last),
        }
        EpochPlan(0, **self._options)
        self._num_workers = as_index("num_workers", num_workers, 0, 4096)
        self._prefetch = as_index("prefetch", prefetch, 0, 1 << 20)
        self._reader: StreamDatasetReader | DocumentReader | None = None
        self._known_order: dict[str, int | str | bool] | None = None
        self._version: int | None = None  # of the manifest, which the loader stays with
        self._at = (0, 0)  # epoch, position: replaced as one, so that any thread reads both
        self._newest: weakref.ref[_EpochIterator] | None = None

    @classmethod
    def from_storage(
        cls,
        storage: StreamStorage | StreamWithMetaStorage | DocumentStorage,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        sequence_length: int | None = None,
        stride: int | None = None,
        **options: Unpack[LoaderOptions],
    ) -> Self:
        """A loader over a storage.

        Args:
            storage: a stream, with or without metadata, or documents.
            collate_fn: see the class.
            sequence_length: elements per sample; needed for a stream.
            stride: for a stream, elements between the starts of neighbouring samples;
                `sequence_length` when left out. ``sequence_length=L + 1, stride=L`` gives inputs
                and shifted labels.
            **options: the keyword arguments of the class.
        """
        if not isinstance(storage, Storage):
            raise TypeError(
                f"storage is {type(storage).__name__}; expected a StreamStorage, "
                "StreamWithMetaStorage or DocumentStorage. guideloom.open(directory) gives it"
            )
        if isinstance(storage, DocumentStorage):
            if sequence_length is not None or stride is not None:
                raise TypeError(
                    "from_storage got sequence_length or stride for documents, which are samples "
                    "as they are; leave them out"
                )
            return cls(DocumentDataset(storage), collate_fn, **options)
        if sequence_length is None:
            raise TypeError(
                "from_storage needs sequence_length for a stream: the number of elements per sample"
            )
        return cls(StreamDataset(storage, sequence_length, stride), collate_fn, **options)

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = {**self._options, **self._padding}
        options = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        epoch, position = self._at
        return (
            f"StatefulDataLoader({self.dataset!r}, {options}) at epoch {epoch}, position {position}"
        )

    def close(self) -> None:
        """Stop the workers and close the dataset. Position and delivered batches stay."""
        self._retire_iterator()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    @property
    def global_batch_size(self) -> int:
        """Samples per step over all ranks."""
        return int(self._options["local_batch_size"] * self._options["world_size"])

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        return self._at[0]

    @property
    def position(self) -> int:
        """Samples of this epoch, over all ranks, that were delivered."""
        return self._at[1]

    def __len__(self) -> int:
        """Steps of a whole epoch; one that is resumed in the middle has fewer left."""
        return len(EpochPlan(len(self._opened()), **self._options))

    def __iter__(self) -> Iterator[Any]:
        """The batches from here to the end of the epoch."""
        self._retire_iterator()
        epoch, position = self._at
        plan = self._plan(epoch, position)
        # Resumed with a larger global batch, what is left of an epoch may fill none: this pass then
        # has no batch, as it should be, and the next epoch comes next.
        if not len(plan) and not position:
            warnings.warn(
                f"the epoch has no batch: {plan.length} samples, global batch size "
                f"{plan.global_batch_size}, drop_last={plan.drop_last}",
                stacklevel=2,
            )
        iterator = _EpochIterator(self, plan)
        self._newest = weakref.ref(iterator)
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; nothing happens if the loader is in it already.

        So a loop that calls it before every epoch also goes on correctly after a resume, if it
        begins at `loader.epoch`.
        """
        epoch = as_index("epoch", epoch, 0, None)
        if epoch != self._at[0]:
            self._retire_iterator()
            self._at = (epoch, 0)

    def state_dict(self) -> dict[str, int | str | bool | None]:
        """The position delivered, and what determines the order. Equal on all ranks.

        If the dataset was consolidated, the state pins the manifest version.
        """
        epoch, position = self._at
        return make_state(epoch, position, self._order(), self._version)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to a saved position, in constant time. Iterators made before become invalid.

        If the dataset has grown, the loader goes on over the manifest version that the state pins.

        Raises:
            DatasetNotFoundError: that manifest version is gone. The loader is unchanged.
            StateMismatchError: the state belongs to another dataset, seed or order, or is not
                one; the message names the field. The loader is unchanged.
        """
        version = pinned_version(state_dict, self._order())
        if version is None or self.dataset.storage.version is not None:
            at = read_state(state_dict, self._order(), len(self._opened()))
            self._retire_iterator()
        else:
            reader = self._reader_at(version)
            order = self._order_of(reader)
            try:
                at = read_state(state_dict, order, len(reader))
            except BaseException:
                reader.close()
                raise
            self.close()
            self._reader, self._known_order, self._version = reader, order, version
        self._at = at

    def _order(self) -> dict[str, int | str | bool]:
        """What determines the order; as it was when the dataset was first opened."""
        if self._known_order is None:
            self._opened()
        return dict(self._known_order or {})

    def _plan(self, epoch: int, position: int) -> EpochPlan:
        return EpochPlan(len(self._opened()), epoch=epoch, start=position, **self._options)

    def _opened(self) -> StreamDatasetReader | DocumentReader:
        if self._reader is None:
            reader = self._reader_at(self._version)
            order = self._order_of(reader)
            if self._known_order not in (None, order):
                reader.close()
                raise MismatchError(
                    "the dataset has changed since this loader opened it first, and the loader's "
                    "position belongs to what it was; build a new loader. A loader over a "
                    "consolidated dataset stays with its version"
                )
            self._known_order = order
            self._version = reader.version
            self._reader = reader
        return self._reader

    def _reader_at(self, version: int | None) -> StreamDatasetReader | DocumentReader:
        """A reader of the dataset, at a manifest version or as it is."""
        dataset = self.dataset if version is None else self.dataset.at_version(version)
        reader: StreamDatasetReader | DocumentReader = dataset.sync_reader().open()
        return reader

    def _order_of(
        self, reader: StreamDatasetReader | DocumentReader
    ) -> dict[str, int | str | bool]:
        return {
            **reader.identity(),
            "samples": len(reader),
            "algorithm": ALGORITHM,
            "shuffle": self._options["shuffle"],
            "shuffle_seed": self._options["seed"],
        }

    def _retire_iterator(self) -> None:
        iterator = self._newest() if self._newest is not None else None
        if iterator is not None:
            iterator.retire("the loader was closed, moved, or iterated anew")
        self._newest = None


class _EpochIterator(Iterator[Any]):
    """One pass over the rest of an epoch; moves the loader's position with each batch."""

    def __init__(self, loader: StatefulDataLoader, plan: EpochPlan) -> None:
        self._loader = loader
        self._epoch = plan.epoch
        self._position = plan.start
        self._stop = plan.stop
        self._batch = plan.global_batch_size
        load = loader._load_function(loader._opened())
        self._batches: Iterator[Any] | None = batches(
            plan, load, num_workers=loader._num_workers, prefetch=loader._prefetch
        )
        self._invalid = ""

    def __next__(self) -> Any:
        if self._invalid:
            raise RuntimeError(self._message())
        if self._batches is None:
            raise StopIteration
        position = min(self._position + self._batch, self._stop)
        at = (self._epoch + 1, 0) if position == self._stop else (self._epoch, position)
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._batches is None:
                raise RuntimeError(self._message()) from None
            self._batches = None
            self._loader._at = (self._epoch + 1, 0)  # also after an epoch without a batch
            raise
        except BaseException:
            self.retire("a batch could not be loaded")  # and is not skipped
            raise
        if self._invalid:  # meanwhile, by another thread or by the load itself
            raise RuntimeError(self._message())
        # No call from here on: nothing can come between the batch and its position.
        self._position = position
        self._loader._at = at
        return batch

    def _message(self) -> str:
        return (
            f"this iterator is no longer valid: {self._invalid}. Call iter(loader) again; it goes "
            "on at the loader's position"
        )

    def retire(self, reason: str) -> None:
        """Stop the workers; further calls of next() raise."""
        self._batches = None
        self._invalid = reason


def _distributed() -> tuple[int, int]:
    """(rank, world size) of torch.distributed if it is initialized; (0, 1) in a single process.

    Raises:
        ValueError: a launcher has started several processes, and which one this is is not known.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    launched = os.environ.get("WORLD_SIZE", "1")
    if launched.strip() != "1":
        raise ValueError(
            f"the environment has WORLD_SIZE={launched}, torch.distributed is not initialized, and "
            "rank and world_size were not both given: every process would read the same samples. "
            "Call torch.distributed.init_process_group() first, or pass rank= and world_size="
        )
    return 0, 1
