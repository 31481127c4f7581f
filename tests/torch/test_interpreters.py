"""In an interpreter of its own: exit, torch's number of threads, memory."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest

from .loader_cases import output_of, python, write_stream


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_stream(tmp_path / "stream", 24)


SCRIPT = """
    import sys, threading
    import numpy as np
    import torch
    from guideloom import StatefulDataLoader, StreamNumpyFormat, StreamStorage

    storage = StreamStorage(sys.argv[1], StreamNumpyFormat(np.dtype([("tokens", "<u4")])))

    def make(*arguments, **options):
        return StatefulDataLoader.from_storage(storage, *arguments, sequence_length=3, **options)
"""
EXITS = {
    "end of the program": """
        iterator = iter(make(num_workers=3, prefetch=8))
        next(iterator)
        print("ready", flush=True)
    """,
    "within the loop": """
        for batch in make(num_workers=3, prefetch=8):
            print("ready", flush=True)
            sys.exit()
    """,
    "in another thread": """
        def work():
            iterator = iter(make(num_workers=2, prefetch=8))
            next(iterator)
            print("ready", flush=True)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """,
    "while batches are being made": """
        never = threading.Event()
        def collate(samples):
            if samples[0]["tokens"][0] > 0:
                never.wait()
            return samples
        loader = make(collate, num_workers=3, prefetch=8)
        iterator = iter(loader)
        next(iterator)
        print("ready", flush=True)
    """,
}


def test_the_interpreter_exits_while_batches_are_prefetched(directory: Path) -> None:
    """In time, with code 0 and nothing on stderr."""
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(python(SCRIPT, script, arguments=[directory]))
            for name, script in EXITS.items()
        }
        for name, process in running.items():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", name
            begin = time.monotonic()
            assert output_of(process, 20) == ""
            assert time.monotonic() - begin < 5, name


QUIET = 'import warnings; warnings.simplefilter("ignore")'
THREADS = """
    torch.set_num_threads(3)
    assert torch.get_num_threads() == 3

    def seen_in_a_new_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        return found[0]

    assert seen_in_a_new_thread() == 3
    for workers in (1, 3, 8):
        for batch_size in (1, 24, 25):  # many batches; one, for the first worker; none
            loader = make(num_workers=workers, local_batch_size=batch_size)
            for repeat in range(3):
                for batch in loader:
                    pass
                print(workers, batch_size, torch.get_num_threads(), seen_in_a_new_thread())
"""


def test_torch_uses_as_many_threads_as_before(directory: Path) -> None:
    """torchdata sets 1 in its workers, which would slow down every thread started afterwards."""
    with python(SCRIPT, QUIET, THREADS, arguments=[directory]) as process:
        lines = output_of(process).splitlines()
    expected = [
        f"{workers} {size} 3 3" for workers, size in product((1, 3, 8), (1, 24, 25)) for _ in "123"
    ]
    assert lines == expected


MEMORY = """
    import gc
    prefetch, workers, batches = map(int, sys.argv[2:])
    loader = make(num_workers=workers, prefetch=prefetch, local_batch_size=2, shuffle=True)

    def resident():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def run(count):
        while count > 0:
            for batch in loader:
                count -= 1

    run(batches // 5)
    before, blocks = resident(), sys.getallocatedblocks()
    run(batches)
    print(resident() - before, sys.getallocatedblocks() - blocks)
"""


def test_memory_is_flat_over_a_hundred_thousand_batches(tmp_path: Path) -> None:
    """Without threads, and over fewer batches with them: less than 1 MiB, no object kept."""
    directory = write_stream(tmp_path / "stream", 20_000)
    cases = [(0, 0, 100_000), (4, 2, 10_000)]
    with ExitStack() as stack:
        running = [
            stack.enter_context(python(SCRIPT, MEMORY, arguments=[directory, *case]))
            for case in cases
        ]
        for case, process in zip(cases, running, strict=True):
            grown, blocks = map(int, output_of(process).split())
            assert grown < 1 << 20, case
            assert blocks < 1000, case
