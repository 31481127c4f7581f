"""Placement on a CUDA machine: is every value right, is memory used in time, what does it cost.

    python benchmarks/gpu_check.py            # needs guideloom[torch] and torch, nothing else

Takes less than five minutes, writes 40 MB to a temporary folder, and ends with 1 if a check fails.
On a machine without CUDA it says so, runs the same with copies on the CPU, and ends with 0.

Checks. Windows of uint16 tokens, every one compared on the device with what it must be. The
training stream is kept busy with kernels that only pass time, so that Python is many batches ahead
of it: a batch that was not waited for, or whose memory was used again while a comparison was still
queued, has wrong values. Of 1,000 batches checksums are taken when they come and, a few batches
later, when they go, and the peak of memory must not grow. At the end the waiting, then the keeping
of memory is left out, which shows that the checks see it: many values should be wrong then.

Times. Batches per second, and how long the loop waits for one, beside a step of matrix products of
1 to 5 ms: without loading, with a copy in the loop, and with placement.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import operator
import statistics
import sys
import tempfile
import time
import unittest.mock
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from guideloom import EpochPlan, StatefulDataLoader, StreamDataset, StreamNumpyFormat, StreamStorage
from guideloom_torch._devices import SideStreams

FORMAT = StreamNumpyFormat(np.dtype([("tokens", "<u2")]))
WINDOW = 1024
BATCH = 16
WINDOWS = BATCH * 1200
BUSY_MS = 0.5
LATE_MS = 1.0
WEIGHTS = np.arange(1, WINDOW + 1)  # a checksum changes with the order of values
AHEAD: list[dict[str, Any]] = [{}, {"prefetch": 4}, {"num_workers": 2, "prefetch": 8}]
ROWS = 64  # of the batches that are timed
HELD = 3


@dataclass(frozen=True)
class Nested:
    inputs: torch.Tensor
    more: dict[str, Any]


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def nested(samples: list[Any]) -> Nested:
    tokens = torch.from_numpy(np.stack([sample["tokens"] for sample in samples]))
    pair = Pair(tokens, tokens[:, ::2])  # the second is a view with steps
    return Nested(tokens, {"pair": pair, "rows": [tokens, torch.ones(3)], "name": "a text"})


class Machine:
    """The device, and what differs between CUDA and a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cuda = device.type == "cuda"
        self._cycles = self._cycles_per_ms() if self.cuda else 0.0

    def _cycles_per_ms(self) -> float:
        cycles = 10_000_000
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        event: Any = torch.cuda.Event
        begin, end = (event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        end.record()
        end.synchronize()
        return float(cycles / begin.elapsed_time(end))

    def busy(self, milliseconds: float) -> None:
        """Keep the current stream busy."""
        if self.cuda:
            torch.cuda._sleep(int(self._cycles * milliseconds))  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def wait_for_stream(self) -> None:
        if self.cuda:
            torch.cuda.current_stream(self.device).synchronize()

    def peak(self) -> int:
        """Bytes; counts anew from here."""
        if not self.cuda:
            return 0
        peak = torch.cuda.max_memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return peak

    def own_stream(self) -> Any:
        """A stream of training's own, as a context."""
        if not self.cuda:
            return contextlib.nullcontext()
        made: Any = torch.cuda.Stream
        stream = made(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(stream)

    def name(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.cuda else "no accelerator"


class Data:
    """The stream on disk, and the same on the device to compare with."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        rng = np.random.default_rng(5)
        self.tokens = rng.integers(0, 1 << 16, WINDOWS * WINDOW, dtype=np.uint16)
        self.storage = StreamStorage(folder, FORMAT)
        with self.storage.sync_writer() as writer:
            for shard, part in enumerate(np.split(self.tokens, 4)):
                writer.append(shard, {"tokens": part})
        self.plan = EpochPlan(WINDOWS, shuffle=True, local_batch_size=BATCH)
        wide = torch.from_numpy(self.tokens.astype(np.int32)).reshape(WINDOWS, WINDOW)
        self._windows = wide.to(machine.device)
        ids = np.stack([self.plan.sample_ids(step) for step in range(len(self.plan))])
        self._ids = torch.from_numpy(ids).to(machine.device)
        machine.wait()

    def expected(self, step: int) -> torch.Tensor:
        """The batch of a step as int32, on the device."""
        return self._windows[self._ids[step]]

    def checksum(self, step: int) -> int:
        """Of the batch of a step, computed on the host."""
        windows = self.tokens.reshape(WINDOWS, WINDOW)[self.plan.sample_ids(step)]
        return int((windows.astype(np.int64) * WEIGHTS).sum())

    def loader(self, **options: Any) -> StatefulDataLoader:
        options = {"local_batch_size": BATCH, "shuffle": True, **options}
        return StatefulDataLoader(StreamDataset(self.storage, WINDOW), **options)


class Report:
    def __init__(self) -> None:
        self.failed: list[str] = []
        self.figures: dict[str, float] = {}
        self._begin = time.perf_counter()

    def check(self, name: str, good: bool, found: object) -> None:
        if not good:
            self.failed.append(name)
        seconds = time.perf_counter() - self._begin
        print(f"{'ok  ' if good else 'FAIL'} {seconds:6.1f} s  {name}: {found}", flush=True)

    def right(self, name: str, wrong: int) -> None:
        self.check(name, wrong == 0, f"{wrong} wrong")

    def figure(self, name: str, value: float, unit: str) -> None:
        self.figures[f"{name}, {unit}"] = value
        print(f"     {name}: {value:,.3f} {unit}", flush=True)


def wrong_values(
    data: Data, machine: Machine, steps: int, options: dict[str, Any], busy: float = BUSY_MS
) -> int:
    """How many values differ, over so many batches; the host never waits for the device."""
    wrong = torch.zeros((), dtype=torch.int64, device=machine.device)
    with data.loader(device=machine.device, **options) as loader:
        for step, batch in zip(range(steps), loader, strict=False):
            machine.busy(busy)
            wrong += (batch["tokens"].to(torch.int32) != data.expected(step)).sum()
            del batch
    return int(wrong)


def check_values(data: Data, machine: Machine, report: Report, steps: int) -> None:
    for pin, widen, ahead in itertools.product((False, True), (None, True, torch.int32), AHEAD):
        options = {"pin_memory": pin, "widen": widen, **ahead}
        report.right(f"values, {options}", wrong_values(data, machine, steps, options))
    options = {"pin_memory": True, "widen": True, "num_workers": 2, "parallel_method": "process"}
    report.right("values, from processes", wrong_values(data, machine, steps, options))
    options = {"pin_memory": True, "widen": True, "prefetch": 8}
    with machine.own_stream():
        wrong = wrong_values(data, machine, steps, options)
        report.right("values, on a stream of training's own", wrong)
    for busy in (0.0, BUSY_MS):
        with late_copies(machine):
            wrong = wrong_values(data, machine, steps, options, busy)
        report.right(f"values, copies late by {LATE_MS} ms, steps of {busy} ms", wrong)
    with data.loader(device=machine.device.type, widen=True, prefetch=2) as loader:
        tokens = next(iter(loader))["tokens"]
    found = (tokens.dtype, tokens.device)
    report.check("the device of this thread", found == (torch.int64, machine.device), found)


def check_structure(data: Data, machine: Machine, report: Report, steps: int) -> None:
    wrong = torch.zeros((), dtype=torch.int64, device=machine.device)
    shared = typed = True
    options = {"pin_memory": True, "widen": True, "prefetch": 4, "num_workers": 2}
    with data.loader(collate_fn=nested, device=machine.device, **options) as loader:
        for step, batch in zip(range(steps), loader, strict=False):
            machine.busy(BUSY_MS)
            expected = data.expected(step)
            pair, rows = batch.more["pair"], batch.more["rows"]
            typed &= type(batch) is Nested and type(pair) is Pair and type(rows) is list
            shared &= batch.inputs is pair.first and batch.inputs is rows[0]
            wrong += (batch.inputs != expected).sum() + (pair.second != expected[:, ::2]).sum()
            wrong += (rows[1] != 1).sum()
            del batch, pair, rows
    report.right("structure: values", int(wrong))
    report.check("structure: types and sharing kept", typed and shared, (typed, shared))


def check_reuse(data: Data, machine: Machine, report: Report, steps: int, pin: bool) -> None:
    """Checksums of every batch when it comes and when it goes, and the peak of memory."""
    weights = torch.from_numpy(WEIGHTS).to(machine.device)
    sums: list[torch.Tensor] = []
    held: deque[tuple[int, torch.Tensor]] = deque()
    peaks = []
    machine.peak()
    options = {"pin_memory": pin, "widen": True, "prefetch": 8, "num_workers": 2}
    with data.loader(device=machine.device, **options) as loader:
        for step, batch in zip(range(steps), loader, strict=False):
            machine.busy(BUSY_MS)
            tokens = batch["tokens"]
            sums.append((tokens * weights).sum())
            held.append((step, tokens))
            del batch, tokens
            torch.full((BATCH, WINDOW), -1, device=machine.device)  # takes freed memory, if it is
            if len(held) > HELD:
                _, tokens = held.popleft()
                sums.append((tokens * weights).sum())
                del tokens
            if (step + 1) % 20 == 0:  # the host is ahead by so many at most
                machine.wait()
            if (step + 1) % (steps // 10) == 0:
                peaks.append(machine.peak())
    found = torch.stack(sums).cpu().tolist()
    come = [data.checksum(step) for step in range(steps)]
    order = [come[k] for step in range(steps) for k in (step, step - HELD) if k >= 0]
    wrong = sum(one != other for one, other in zip(found, order, strict=True))
    name = f"reuse, pin_memory={pin}"
    report.right(f"checksums, {name}", wrong)
    if machine.cuda:
        growth = max(peaks[2:]) - max(peaks[:2])
        limit = 32 * BATCH * WINDOW * 8  # what may be ahead; a leak would be 1,000 batches
        report.check(f"memory, {name}", growth <= limit, f"peak {peaks[-1]:,} B, grew {growth:,} B")


@contextlib.contextmanager
def late_copies(machine: Machine) -> Iterator[None]:
    """The side stream passes some time before each copy: what does not wait for it comes first."""
    copy = SideStreams.copy

    def late(streams: SideStreams, value: Any) -> Any:
        machine.busy(LATE_MS)
        return copy(streams, value)

    with unittest.mock.patch.object(SideStreams, "copy", late):
        yield


def show_control(data: Data, machine: Machine, report: Report, steps: int) -> None:
    """The checks can fail: the same without waiting, then without keeping."""
    if not machine.cuda:
        return
    options = {"pin_memory": True, "widen": True}
    on_time = contextlib.nullcontext()
    for name, late, busy in (("wait", late_copies(machine), 0.0), ("keep", on_time, BUSY_MS)):
        with late, unittest.mock.patch.object(SideStreams, name):
            wrong = wrong_values(data, machine, steps, options, busy)
            machine.wait()
        report.figure(f"left out: {name}", wrong, f"values of {steps * BATCH * WINDOW:,} differ")
        if not wrong:
            print(
                f"     which says that the checks would not see a missing {name} here", flush=True
            )


def calibrated(machine: Machine, target: float) -> tuple[Callable[[], object], float]:
    """Matrix products that take about so many milliseconds, and how many they take."""
    size = 2048 if machine.cuda else 256
    kind = torch.bfloat16 if machine.cuda else torch.float32
    matrix = torch.randn(size, size, device=machine.device, dtype=kind) / size

    def work(count: int) -> None:
        product = matrix
        for _ in range(count):
            product = product @ matrix

    def milliseconds(count: int) -> float:
        times = []
        for _ in range(20):
            machine.wait()
            begin = time.perf_counter()
            work(count)
            machine.wait()
            times.append((time.perf_counter() - begin) * 1000)
        return statistics.median(times)

    work(10)
    count = max(1, round(20 * target / milliseconds(20)))
    return lambda: work(count), milliseconds(count)


def timed(batches: Iterator[Any], use: Callable[[Any], Any], step: Any, machine: Machine) -> Any:
    """Seconds of a step, and of the waiting for its batch; the loop waits for each step's end."""
    waits, steps = [], []
    for _ in range(8):
        use(next(batches))
    machine.wait()
    for _ in range(150):
        begin = time.perf_counter()
        batch = use(next(batches))
        got = time.perf_counter()
        step()
        batch.sum()
        machine.wait_for_stream()
        waits.append(got - begin)
        steps.append(time.perf_counter() - begin)
        del batch
    return statistics.mean(steps), statistics.mean(waits), statistics.median(waits)


def show_times(data: Data, machine: Machine, report: Report, targets: tuple[float, ...]) -> None:
    device = machine.device
    ready = torch.cat([data.expected(step) for step in range(ROWS // BATCH)]).long()
    thread = {"prefetch": 4, "num_workers": 1}
    placed: dict[str, Any] = {"device": device, "widen": True}
    tokens = operator.itemgetter("tokens")
    ways: dict[str, tuple[dict[str, Any] | None, Callable[[Any], Any]]] = {
        "no loading": (None, lambda batch: batch),
        "copied in the loop": (thread, lambda batch: tokens(batch).to(device).long()),
        "placed": ({**thread, **placed}, tokens),
        "placed, pinned": ({**thread, **placed, "pin_memory": True}, tokens),
        "placed, pinned, no thread": ({**placed, "pin_memory": True}, tokens),
    }
    for target in targets:
        step, milliseconds = calibrated(machine, target)
        for name, (options, use) in ways.items():
            if options is None:
                seconds, mean, median = timed(itertools.repeat(ready), use, step, machine)
            else:
                with data.loader(local_batch_size=ROWS, **options) as loader:
                    seconds, mean, median = timed(iter(loader), use, step, machine)
            name = f"step of {milliseconds:.2f} ms, {name}"
            report.figure(name, 1 / seconds, "batches/s")
            report.figure(name, mean * 1e6, "us waited, mean")
            report.figure(name, median * 1e6, "us waited, median")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--device", help="cuda, cuda:1, cpu; CUDA if there is one")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    there = torch.cuda.is_available()
    if not there:
        torch.set_num_threads(1)  # or the products of a step take the loading thread's core
    device = torch.device(arguments.device or ("cuda" if there else "cpu"))
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    else:
        print("no CUDA device: the same code on the CPU, where every copy blocks", flush=True)
    machine, report = Machine(device), Report()
    print(f"torch {torch.__version__}, {machine.name()}, {device}", flush=True)
    few, many = (200, 1000) if machine.cuda else (10, 50)
    with tempfile.TemporaryDirectory() as folder:
        data = Data(Path(folder) / "stream", machine)
        check_values(data, machine, report, few)
        check_structure(data, machine, report, few)
        for pin in (False, True):
            check_reuse(data, machine, report, many, pin)
        show_control(data, machine, report, few)
        show_times(data, machine, report, (1.0, 2.0, 5.0) if machine.cuda else (1.0,))
    if arguments.json is not None:
        facts = {"torch": torch.__version__, "device": machine.name(), "failed": report.failed}
        arguments.json.write_text(json.dumps({**facts, "figures": report.figures}, indent=2) + "\n")
    print(f"{len(report.failed)} checks failed" if report.failed else "all checks passed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
