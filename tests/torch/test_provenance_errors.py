"""What `locate` refuses, and how it says so."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import EpochPlan, StreamDataset
from guideloom_torch._provenance import locate
from read.stream_cases import PLAIN, Cuts, numpy_stream

CUTS: Cuts = {0: [3, 1, 4], 2: [1], 3: [5, 9], 70: [2, 6, 5]}


def test_places_that_cannot_be(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "d", PLAIN, CUTS)
    with StreamDataset(storage, 2).sync_reader() as reader:
        plan = EpochPlan(len(reader), world_size=3, local_batch_size=2, drop_last=False)
        number: Any
        for number in (-1, 3, 2**31, 2**63, 2**64, 10**30, -(2**63)):
            with pytest.raises(IndexError, match=rf"^step {number} is outside \[0, 3\), the steps"):
                locate(plan, reader, number)
            located = locate(plan, reader, 0)
            with pytest.raises(IndexError, match=rf"^rank {number} is outside \[0, 3\)$"):
                located[number, 0]
            with pytest.raises(IndexError, match=rf"^rank {number} is outside \[0, 3\)$"):
                located.rank(number)
            if number != 3:
                with pytest.raises(IndexError, match=rf"^row {number} is outside \[0, 2\)$"):
                    located[0, number]
        for number in (1.0, "1", None, True, np.float32(0)):
            with pytest.raises(TypeError, match=r"^step is .*; expected an integer$"):
                locate(plan, reader, number)
            with pytest.raises(TypeError, match=r"^row is .*; expected an integer$"):
                located[0, number]
            with pytest.raises(TypeError, match=r"^rank is .*; expected an integer$"):
                located.rank(number)
        at: Any
        for at in (0, (0,), (0, 0, 0), slice(0, 1), [0, 0]):
            with pytest.raises(TypeError, match=r"^located\[.*\]; expected located\[rank, row\]$"):
                located[at]
        with pytest.raises(TypeError, match=r"^located\[0\]; "):
            list(located)  # type: ignore[call-overload]
        kinds = ("i1", "u1", "i4", "u8")
        for one, kind in itertools.product(((0, 1), (2, 0)), kinds):
            scalars = [np.dtype(kind).type(value) for value in one]
            assert located[scalars[0], scalars[1]] == located[one]
            assert repr(located[scalars[0], scalars[1]]) == repr(located[one])
        for kind in kinds:
            step = locate(plan, reader, np.dtype(kind).type(2))
            assert step.samples.tolist() == locate(plan, reader, 2).samples.tolist()
            assert type(step.step) is int


def test_what_does_not_belong_together(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "d", PLAIN, CUTS)
    with StreamDataset(storage, 2).sync_reader() as reader:
        with pytest.raises(
            ValueError, match=r"^the plan is of 17 samples, the reader has 18; expected the reader "
        ):
            locate(EpochPlan(17), reader, 0)
        with pytest.raises(ValueError, match=r"^payloads were asked for, and only a stream with "):
            locate(EpochPlan(18), reader, 0, payloads=True)
        wrong: Any = reader.stream
        with pytest.raises(TypeError, match=r"^reader is StreamReader; expected a reader of "):
            locate(EpochPlan(18), wrong, 0)
    with pytest.raises(ValueError, match=r"^the reader is not open; "):
        locate(EpochPlan(18), reader, 0)
