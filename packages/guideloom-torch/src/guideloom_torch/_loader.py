"""`StatefulDataLoader`: batches for training, resumable at the position that was delivered."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, Unpack

import torch

from guideloom_format import (
    Delivery,
    DocumentStorage,
    EpochPlan,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_format._integers import as_index, as_seed
from guideloom_format._plan import MAX_EPOCH
from guideloom_format._processes import StartMethod
from guideloom_read import DocumentDataset, StreamDataset
from guideloom_torch._checks import check_samples, check_storage, pads, refuse_copy
from guideloom_torch._collate import LoadOf
from guideloom_torch._distributed import rank_and_world_size
from guideloom_torch._epoch import EpochIterator, Position
from guideloom_torch._options import LoaderOptions, Loading, Order, ParallelMethod, differing
from guideloom_torch._pinned import PinnedDataset
from guideloom_torch._placement import Placement
from guideloom_torch._provenance import Located, locate
from guideloom_torch._reads import Reads
from guideloom_torch._state import make_state
from guideloom_torch._stats import LoaderStats, Meter
from guideloom_torch._steps import LoadStep, where
from guideloom_torch._workers import Workers

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


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
            and is 0 otherwise, in a job of one process; in one of more, it must be given.
        world_size: number of processes; left out, as for `rank`.
        mesh: in place of both: the ranks that read different samples, such as ``mesh["dp"]``.
        shuffle: whether the samples come in `feistel-1` order, another one every epoch.
        shuffle_seed: from 0 up, of at most 8,192 bits, the same on all ranks; 0 when left out.
        drop_last: leave out the samples of an incomplete last global batch. Otherwise the last
            step is shorter, and empty on a rank for which nothing is left, so that all ranks have
            as many steps.
        pad: ``"mask"``, with ``drop_last=False``: every batch has `local_batch_size` samples and
            comes as a `MaskedBatch`, whose mask says which of them count. What fills up the last
            step are samples from the start of the epoch.
        pad_to: for documents that are arrays of numbers: make a `Padded` of tensors of each batch,
            with rows of this many values, or, with ``"longest"``, as many as the batch's longest
            document has. A document longer than `pad_to` is an error.
            The stored values are padded; `unpack` of the storage format is not called.
        pad_value: what stands behind a document.
        num_workers: threads or processes that load batches; 0 loads in the thread that iterates,
            or, with `prefetch`, in one thread.
        parallel_method: ``"thread"``; or ``"process"``, for a `collate_fn` that holds the GIL. The
            processes open the dataset themselves and stay until `close`; lambdas and closures
            work. A batch comes through memory without a name, and is not copied again.
        start_method: of the processes. ``"forkserver"`` and ``"spawn"`` begin anew, beside any
            threads, and need a script's usual ``if __name__ == "__main__":``; ``"fork"`` gives
            them all that the caller has, and is safe only as long as it has no busy threads.
        prefetch: batches held ready ahead of the training loop, besides one for each worker.
        prefetch_bytes: and never more bytes of batches than this, if given, taking each for as
            large as the largest so far; but always one batch.
        lookahead: steps beyond, whose reads are announced to the operating system.
        device: where the tensors of batches go, for example ``"cuda"``; copies run beside the
            training loop, on a stream of their own. Left out, they stay on the CPU.
        pin_memory: copy through pinned memory, as fast copies to a device need it.
        widen: the integer type that unsigned tokens of 16 and 32 bits become when they are at the
            device: True for int64, or a torch.dtype. They travel in their small type.
        stall_after: seconds; a longer wait for a batch is logged as a warning, once, with what is
            waited for (logger ``guideloom_torch``). None for no warning.
        timeout: seconds; a longer wait for a batch is an error. None to wait for ever.

    Raises:
        TypeError, ValueError: an argument outside its interval, named.
        DatasetError, MismatchError: when the dataset is opened, at the first use.
        WorkerError, LoaderTimeoutError: from the iterator. The position is that of the last batch
            that was delivered; ``iter(loader)`` goes on there.
    """

    def __init__(
        self,
        dataset: StreamDataset | DocumentDataset,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        local_batch_size: int = 1,
        rank: int | None = None,
        world_size: int | None = None,
        mesh: DeviceMesh | None = None,
        shuffle: bool = False,
        shuffle_seed: int | None = None,
        drop_last: bool = True,
        pad: Literal["mask"] | None = None,
        pad_to: int | Literal["longest"] | None = None,
        pad_value: float = 0,
        num_workers: int = 0,
        parallel_method: ParallelMethod = "thread",
        start_method: StartMethod = "forkserver",
        prefetch: int = 0,
        prefetch_bytes: int | None = None,
        lookahead: int = 0,
        device: torch.device | str | int | None = None,
        pin_memory: bool = False,
        widen: torch.dtype | bool | None = None,
        stall_after: float | None = 60.0,
        timeout: float | None = None,
    ) -> None:
        check_samples(dataset, collate_fn)
        self.dataset = dataset
        self._pad = pads(pad)
        self._load_of = LoadOf(dataset, collate_fn, pad_to, pad_value)
        found_rank, found_world_size = rank_and_world_size(rank, world_size, mesh)
        self._order = Order(
            seed=as_seed("shuffle_seed", 0 if shuffle_seed is None else shuffle_seed),
            shuffle=shuffle,
            rank=found_rank,
            world_size=found_world_size,
            local_batch_size=local_batch_size,
            drop_last=drop_last,
        )
        self._loading = Loading(
            num_workers=num_workers,
            parallel_method=parallel_method,
            start_method=start_method,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            lookahead=lookahead,
            stall_after=stall_after,
            timeout=timeout,
        )
        self._placement = Placement(device, pin_memory, widen)
        self._pinned = PinnedDataset(dataset, self._order)
        self._position = Position()
        self._meter = Meter()
        self._workers = Workers(self._loading, self._load_of, self._pad)
        self._newest: weakref.ref[EpochIterator] | None = None

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
        check_storage(storage)
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
        self._pinned.reader()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        options = differing({**asdict(self._order), **self._load_of.padding})
        epoch, position = self._position.at
        return (
            f"StatefulDataLoader({self.dataset!r}, {options}) at epoch {epoch}, position {position}"
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """A loader has one position and one set of workers, and is not copied or pickled."""
        refuse_copy()
        return super().__reduce_ex__(protocol)

    def close(self) -> None:
        """Stop the workers and close the dataset. Position and delivered batches stay."""
        self._retire_iterator()
        self._workers.close()
        self._pinned.close()

    @property
    def global_batch_size(self) -> int:
        """Samples per step over all ranks."""
        return self._order.global_batch_size

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        return self._position.at[0]

    @property
    def position(self) -> int:
        """Samples of this epoch, over all ranks, that were delivered."""
        return self._position.at[1]

    def __len__(self) -> int:
        """Steps of a whole epoch; one that is resumed in the middle has fewer left."""
        return len(self._order.plan(len(self._pinned.reader())))

    def __iter__(self) -> Iterator[Any]:
        """The batches from here to the end of the epoch."""
        self._retire_iterator()
        epoch, position = self._position.at
        plan = self._plan(epoch, position)
        # Resumed with a larger global batch, what is left of an epoch may fill none: this pass then
        # has no batch, as it should be, and the next epoch comes next.
        if not len(plan) and not position:
            warnings.warn(
                f"the epoch has no batch: {plan.length} samples, global batch size "
                f"{plan.global_batch_size}, drop_last={plan.drop_last}",
                stacklevel=2,
            )
        reader = self._pinned.reader()
        load = LoadStep(
            plan,
            self._load_of(reader),
            self._pad,
            reader.announce,
            self._loading.lookahead,
            partial(where, reader),
        )
        iterator = EpochIterator(
            plan,
            load,
            self._workers.pool(self._pinned),
            self._loading,
            self._placement,
            self._meter,
            self._position,
            self._pinned.reads,
        )
        self._newest = weakref.ref(iterator)
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; nothing happens if the loader is in it already.

        So a loop that calls it before every epoch also goes on correctly after a resume, if it
        begins at `loader.epoch`.

        Args:
            epoch: 0 to 2**63 - 1.
        """
        epoch = as_index("epoch", epoch, 0, MAX_EPOCH)
        if epoch != self._position.at[0]:
            self._retire_iterator()
            self._position.at = (epoch, 0)

    def seek(self, step: int) -> None:
        """Go to a step of this epoch, counted from its start in the present global batch size.

        Args:
            step: 0 to ``len(loader)``, which is the start of the next epoch.
        """
        plan = self._plan(self.epoch, 0)
        step = as_index("step", step, 0, len(plan))
        self._retire_iterator()
        self._position.at = plan.after(step)

    def skip(self, steps: int) -> None:
        """Leave out the next steps, as if they had been delivered, into later epochs too.

        Raises:
            ValueError: there is no batch in an epoch, and so nothing to leave out; or it would
                lead beyond the last epoch, 2**63 - 1.
        """
        at = self._plan(*self._position.at).after(as_index("steps", steps, 0, None))
        self._retire_iterator()
        self._position.at = at

    def locate(self, epoch: int, step: int, *, payloads: bool = False) -> Located:
        """What a step delivers: for each rank and row the sample, and where it is stored.

        By arithmetic, whatever the size of the dataset; only the ends of documents, and the
        payloads of spans if asked for, are read, when they are looked at.

        Args:
            epoch: of which the step is. In the present one, steps are those that this loader
                delivers from its position on, and lie before that as if it had done so from the
                start; what another global batch size delivered of it cannot be known.
            step: counted from the start of the epoch.
            payloads: of the spans as well, as they are stored.

        Raises:
            IndexError: no such step.
        """
        return locate(self._numbered(epoch), self._pinned.reader(), step, payloads=payloads)

    def when(self, sample: int, epoch: int | None = None) -> Delivery | None:
        """At which step, on which rank and in which row a sample comes; None if it does not.

        Args:
            sample: its id.
            epoch: the present one when left out; steps are counted as for `locate`.

        Raises:
            IndexError: no such sample.
        """
        return self._numbered(self.epoch if epoch is None else epoch).delivery(sample)

    def state_dict(self) -> dict[str, int | str | bool | None]:
        """The position delivered, and what determines the order. Equal on all ranks.

        If the dataset was consolidated, the state pins the manifest version.
        """
        epoch, position = self._position.at
        return make_state(epoch, position, self._pinned.identity(), self._pinned.version)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to a saved position, in constant time. Iterators made before become invalid.

        If the dataset has grown, the loader goes on over the manifest version that the state pins.

        Raises:
            DatasetNotFoundError: that manifest version is gone. The loader is unchanged.
            StateMismatchError: the state belongs to another dataset, seed or order, or is not
                one; the message names the field. The loader is unchanged.
        """
        self._position.at = self._pinned.place_of(state_dict, self._retire_iterator)

    def stats(self) -> LoaderStats:
        """What loading has cost the training loop so far, and how much is ready."""
        iterator = self._newest() if self._newest is not None else None
        depth = iterator.depth() if iterator is not None else (0, 0)
        reads = Reads.of(self._pinned.reads).plus(self._workers.reads())
        return self._meter.shown(*depth, reads)

    def _plan(self, epoch: int, position: int) -> EpochPlan:
        return self._order.plan(len(self._pinned.reader()), epoch=epoch, start=position)

    def _numbered(self, epoch: int) -> EpochPlan:
        """The plan by which steps of an epoch are counted."""
        at, position = self._position.at
        start = position % self.global_batch_size if epoch == at else 0
        return self._plan(as_index("epoch", epoch, 0, MAX_EPOCH), start)

    def _retire_iterator(self) -> None:
        iterator = self._newest() if self._newest is not None else None
        if iterator is not None:
            iterator.retire("the loader was closed, moved, or iterated anew")
        self._newest = None
