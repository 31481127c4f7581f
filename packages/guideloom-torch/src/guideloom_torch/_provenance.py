"""`locate`: which samples a step delivers, on every rank and in every row, and where they lie.

::

    epoch, step, rank, row ──EpochPlan──> sample ──places──> shard, elements, file, bytes
                           <─EpochPlan.delivery─

Both directions are arithmetic on the plan of the epoch and the reader's table of parts, for the
future as for the past, at any scale. Bytes of documents and payloads of spans are read when they
are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guideloom_format import EpochPlan
from guideloom_format._integers import as_flag, as_integer, shown
from guideloom_read._places import Piece, Places, SampleReader, layout_of, places

SHOWN_ROWS = 8
SHOWN_PIECES = 3


class SpanPiece(NamedTuple):
    """What one sample has of one span.

    Attributes:
        span: number of the span in the dataset.
        start, stop: the elements ``[start, stop)`` of the sample.
        payload: the span's payload, as it is stored.
    """

    span: int
    start: int
    stop: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class LocatedSample:
    """The sample in one row of one rank.

    Attributes:
        rank, row: of the local batch.
        sample: its id.
        pieces: where it lies, one behind the other; see `Piece`.
        spans: the spans in it, in order, with their payloads; None if they were not asked for.
    """

    rank: int
    row: int
    sample: int
    pieces: tuple[Piece, ...]
    spans: tuple[SpanPiece, ...] | None = None

    def __str__(self) -> str:
        lines = [f"rank {self.rank}, row {self.row}: sample {self.sample}"]
        for piece in self.pieces:
            known = piece.byte_start >= 0
            nbytes = f", bytes {piece.byte_start} to {piece.byte_stop}" if known else ""
            lines.append(
                f"  shard {piece.shard}, {piece.start} to {piece.stop}: {piece.file}{nbytes}"
            )
        for span in self.spans or ():
            payload = shown(span.payload)
            lines.append(f"  elements {span.start} to {span.stop}: span {span.span}, {payload}")
        return "\n".join(lines)


class Located:
    """One step of an epoch, on all ranks: ``located[rank, row]`` says what lies there, and where.

    Printed, it is a table of its first rows.

    Args:
        plan: of the epoch; its rank does not matter, and steps are counted from its `start`.
        reader: of the samples, open.
        step: of the plan.
        payloads: for a stream with metadata, whether ``located[rank, row]`` and `rank` read the
            payloads of the spans.
    """

    def __init__(
        self, plan: EpochPlan, reader: SampleReader, step: int, *, payloads: bool = False
    ) -> None:
        layout = layout_of(reader)
        step = as_integer("step", step)
        plan.position_at(step)  # refuses what is no step
        if len(reader) != plan.length:
            raise ValueError(
                f"the plan is of {plan.length} samples, the reader has {len(reader)}; expected the "
                "reader that the plan was made for"
            )
        self.plan = plan
        self.epoch = plan.epoch
        self.step = step
        self._reader = reader
        self._payloads = payloads = as_flag("payloads", payloads)
        self._layout = layout
        places(reader, [], read_ends=False, payloads=payloads)  # refuses payloads without spans

    @cached_property
    def samples(self) -> NDArray[np.int64]:
        """The sample ids: int64 (world_size, local_batch_size); -1 where nothing is left.

        With ``pad="mask"`` a loader repeats other samples there, in rows that are not valid.
        """
        return self.plan.all_sample_ids(self.step)

    def __len__(self) -> int:
        """Samples in the step, over all ranks."""
        begin = self.plan.position_at(self.step)
        return min(self.plan.global_batch_size, self.plan.stop - begin)

    def __getitem__(self, at: tuple[int, int]) -> LocatedSample | None:
        """The sample in a row of a rank; None where nothing is left.

        For documents, 16 bytes are read; with payloads, the spans. The reader must be open then.

        Raises:
            IndexError: no such rank or row.
            TypeError: not two integers.
            DamagedFileError: what was read is not what was committed.
        """
        if not isinstance(at, tuple) or len(at) != 2:
            raise TypeError(f"located[{shown(at)}]; expected located[rank, row]")
        rank, row = at
        sample = self.plan.sample_at(self.step, rank, row)
        if sample is None:
            return None
        found = self._places(np.array([sample], dtype=np.int64))
        spans = _span_pieces(found) if self._payloads else None
        return LocatedSample(int(rank), int(row), sample, found.pieces(0), spans)

    def rank(self, rank: int) -> Places:
        """The places of all samples of a rank, in order of the rows, as columns.

        Reads as ``located[rank, row]`` does, for all rows at once.

        Raises:
            IndexError: no such rank.
            TypeError: not an integer.
        """
        self.plan.sample_at(self.step, rank, 0)  # refuses what is no rank
        return self._places(replace(self.plan, rank=rank).sample_ids(self.step))

    def _places(self, ids: NDArray[np.int64]) -> Places:
        """The places of samples; nothing is read where nothing need be."""
        found = self._layout.places(ids)
        if self._payloads or (found.byte_start < 0).any():
            return places(self._reader, ids, payloads=self._payloads)
        return found

    def __repr__(self) -> str:
        plan = self.plan
        rows = f"{plan.world_size} ranks of {plan.local_batch_size} rows"
        lines = [f"epoch {self.epoch}, step {self.step}: {len(self)} samples, {rows}"]
        table, at = self._first_rows()
        lines += _aligned(table)
        if at < len(self):
            lines.append(f"… {len(self) - at} more")
        return "\n".join(lines)

    def _first_rows(self) -> tuple[list[list[Any]], int]:
        """The table that is shown, and how many samples are in it."""
        table: list[list[Any]] = [["rank", "row", "sample", "shard", "from", "to", "file", "bytes"]]
        first = [*islice(self._in_order(), SHOWN_ROWS)]
        found = self._layout.places(np.array([sample for *_, sample in first], dtype=np.int64))
        for k, place in enumerate(first):
            head: list[Any] = [*place]
            for piece in found.pieces(k, SHOWN_PIECES):
                nbytes = f"{piece.byte_start}-{piece.byte_stop}" if piece.byte_start >= 0 else ""
                table.append([*head, *piece[:4], nbytes])
                head = ["", "", ""]
            hidden = int(found.offsets[k + 1] - found.offsets[k]) - SHOWN_PIECES
            if hidden > 0:
                table.append([*head, "", "", "", f"… {hidden} more", ""])
        return table, len(first)

    def _in_order(self) -> Iterator[tuple[int, int, int]]:
        """Rank, row and sample, in order."""
        for rank in range(self.plan.world_size):
            for row in range(self.plan.local_batch_size):
                sample = self.plan.sample_at(self.step, rank, row)
                if sample is not None:
                    yield rank, row, sample
                elif row == 0:  # nor has any other rank a sample
                    return
                else:
                    break


def locate(plan: EpochPlan, reader: SampleReader, step: int, *, payloads: bool = False) -> Located:
    """What all ranks get at a step of an epoch, and where it lies.

    Nothing is read and nothing computed that grows with ranks, batch or dataset, until it is asked
    of the result.

    Args:
        plan: of the epoch, from its start.
        reader: of the samples, open.
        step: in ``[0, len(plan))``.
        payloads: for a stream with metadata, whether the result gives the payloads of the spans.

    Raises:
        IndexError: no such step.
        TypeError: step is not an integer, or another kind of reader.
        ValueError: the reader is not open, or is not of this plan, or has no spans for `payloads`.
    """
    return Located(plan, reader, step, payloads=payloads)


def _span_pieces(found: Places) -> tuple[SpanPiece, ...]:
    """The spans of the one sample that was found."""
    spans = found.spans
    if spans is None or spans.payloads is None:
        return ()
    payloads = [payload.tobytes() for payload in spans.payloads.arrays()]
    return tuple(
        SpanPiece(span, start, start + length, payloads[index])
        for span, start, length, index in zip(
            spans.spans.tolist(),
            spans.starts.tolist(),
            spans.lengths.tolist(),
            spans.payload_index.tolist(),
            strict=True,
        )
    )


def _aligned(table: list[list[Any]]) -> list[str]:
    """The rows of a table as lines, names to the left and numbers to the right."""
    cells = [[str(cell) for cell in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if head == "file" else cell.rjust(width)
            for cell, width, head in zip(row, widths, table[0], strict=True)
        ).rstrip()
        for row in cells
    ]
