"""A process that ends while threads load ends as it would without them: no abort, no long wait.

Python unwinds daemon threads at exit; within torch that once ended the process with SIGABRT.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from guideloom import DocumentBytesFormat, DocumentStorage
from guideloom_torch._threads import EXIT_SECONDS

LOADER = """
import sys, time
import torch
from guideloom import DocumentBytesFormat, DocumentStorage, StatefulDataLoader

def in_torch(batch):
    total = torch.zeros(64, 64)
    for _ in range(200):
        total = total + torch.tensor([1.0]).sum()
    return total

def first_then_never(batch):
    if batch != [b"0", b"1"]:
        time.sleep(1000)

storage = DocumentStorage(sys.argv[1], DocumentBytesFormat())
loader = StatefulDataLoader.from_storage(
    storage, {collate}, local_batch_size=2, num_workers=3, prefetch=4
)
"""
ENDS = {
    "the end of the block": "with loader:\n    next(iter(loader))",
    "the end of the script": "batches = iter(loader)\nnext(batches)",
    "an exception": "for batch in loader:\n    raise KeyError('mine')",
    "sys.exit": "for batch in loader:\n    sys.exit(3)",
}
CODES = {"an exception": 1, "sys.exit": 3}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("exit") / "documents"
    with DocumentStorage(place, DocumentBytesFormat()).sync_writer() as writer:
        writer.extend(0, [b"%d" % k for k in range(1000)])
    return place


def run(script: str, directory: Path) -> tuple[int, str]:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return result.returncode, result.stderr


@pytest.mark.parametrize("end", ENDS)
def test_threads_in_torch_do_not_abort_the_process(end: str, directory: Path) -> None:
    for _ in range(3):
        code, text = run(LOADER.replace("{collate}", "in_torch") + ENDS[end], directory)
        assert code == CODES.get(end, 0), text
        assert "KeyError: 'mine'" in text if end == "an exception" else text == ""


def test_a_load_that_never_returns_does_not_keep_the_process(directory: Path) -> None:
    """What is waited for is bounded; the clock is the same for all processes of a machine."""
    script = LOADER.replace("{collate}", "first_then_never") + ENDS["the end of the block"]
    code, text = run(script + "\nsys.stderr.write(str(time.monotonic()))", directory)
    assert code == 0, text
    assert time.monotonic() - float(text) < EXIT_SECONDS + 5  # the rest is the interpreter's
