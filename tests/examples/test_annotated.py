"""The example of annotated text, against a model of its own: what it writes, draws and counts."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import guideloom
from examples.annotated_model import (
    SCRIPT,
    SHARDS,
    WINDOW,
    content,
    documents,
    example,
    first_across_shards,
    output,
    owners,
    picture,
    said,
    spans,
)

KILLER = Path(__file__).parent / "kill_at_call.py"
CHANGES = "fsync,link,mkdir,unlink,write"
FEW = 70


def run_here(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    """The same in this process, which has imported everything already."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
    example.main()


def run(*arguments: object, kill_at: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPT), *map(str, arguments)]
    if kill_at is not None:
        command = [str(KILLER), str(kill_at), CHANGES, *command]
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def files(directory: Path) -> dict[str, tuple[int, int]]:
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def test_the_text_is_real_and_its_annotations_differ_in_size() -> None:
    assert len(documents()) > 150
    sizes = {len(concepts) for _, _, concepts in documents()}
    assert {0, 1, 2, 3} <= sizes
    ids = [name for _, name, _ in documents()]
    assert len(set(ids)) == len(ids)
    assert {"heapq.merge", "textwrap.wrap", "json.loads"} <= set(ids)


def test_as_a_newcomer_runs_it() -> None:
    """Everything printed is what the model says. The picture crosses a border of shards."""
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == said(len(documents()), None)
    assert len(set(re.findall(r"\(shard \d\)", done.stdout))) == 2


def test_a_second_run_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a larger limit goes on with the same dataset."""
    options = (tmp_path, "--documents", FEW)
    run_here(monkeypatch, *options)
    assert capsys.readouterr().out == said(FEW, FEW)
    assert content(tmp_path) == spans(FEW)
    before = files(tmp_path)
    run_here(monkeypatch, *options, "--topic", "file")
    assert capsys.readouterr().out == said(0, FEW, "file")
    assert files(tmp_path) == before
    run_here(monkeypatch, tmp_path)
    assert capsys.readouterr().out == said(len(documents()) - FEW, None)
    assert content(tmp_path) == spans(None)
    assert before.items() <= files(tmp_path).items()


@pytest.mark.parametrize("kill_at", [0, 61, 102])
def test_a_killed_writer_goes_on(
    tmp_path: Path,
    kill_at: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = run(tmp_path, "--documents", FEW, kill_at=kill_at)
    assert done.returncode == -signal.SIGKILL, f"only {kill_at} changes: {done.stderr}"
    assert done.stdout == ""
    run_here(monkeypatch, tmp_path, "--documents", FEW)
    assert capsys.readouterr().out.endswith(f" of them written now\n\n{output(FEW)}")
    assert content(tmp_path) == spans(FEW)


def test_other_documents_and_numbers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example.write(tmp_path, example.find_documents()[:9])
    before = files(tmp_path)
    with pytest.raises(SystemExit, match=r"^run\.py: the dataset there has other documents; choo"):
        run_here(monkeypatch, tmp_path, "--documents", 5)
    assert files(tmp_path) == before
    with pytest.raises(SystemExit, match="2"):
        run_here(monkeypatch, "--documents", 2)
    assert "--documents must be at least 3, one for each shard" in capsys.readouterr().err


# Its parts


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("annotated")
    assert example.write(directory, example.find_documents()) == len(documents())
    return directory


def test_every_window_is_drawn(dataset: Path) -> None:
    """Documents that begin, end, or do both within; of one byte, of one shard or several."""
    storage = example.storage(dataset)
    with guideloom.StreamDataset(storage, WINDOW).sync_reader() as windows:
        for number in range(0, len(windows), 3):
            assert example.draw(windows[number]).split("\n") == picture(None, number)
        crossing = list(example.windows_across_shards(windows))
    assert len(crossing) <= SHARDS - 1
    assert crossing[:1] == [first_across_shards(None)]
    one_byte = guideloom.SpanWindow(
        np.frombuffer(b"a\nb", np.uint8),
        np.array([0, 0, 1]),
        [{"id": "x", "concepts": []}, {"id": "y", "concepts": [["list", 2], ["file", 1]]}],
        [0, 7],
    )
    assert example.draw(one_byte).split("\n") == [
        "a¶b",
        "└┘   x: no concepts (shard 0)",
        "  │  y: list 2, file 1 (shard 7)",
    ]


@pytest.mark.parametrize("topic", example.TOPICS)
def test_tokens_about_every_topic(dataset: Path, topic: str) -> None:
    numbers = np.array(owners(None))
    about = np.array([any(topic == one for one, _ in span.concepts) for span in spans(None)])
    loader = guideloom.StatefulDataLoader.from_storage(
        example.storage(dataset), sequence_length=WINDOW, stride=10, local_batch_size=50
    )
    for k, batch in enumerate(loader):
        starts = 10 * np.arange(50 * k, 50 * k + 50)
        rows = starts[:, None] + np.arange(WINDOW)
        assert example.tokens_about(batch, topic).tolist() == about[numbers[rows]].tolist()


def test_the_header_says_what_it_is(dataset: Path) -> None:
    header = json.loads((dataset / "guideloom.json").read_text())
    assert header["kind"] == "stream-with-meta"
    assert header["user"] == {"source": "Python's standard library"}
    assert header["storage_format"]["parameters"]["payload_format"]["name"] == "document-json"
