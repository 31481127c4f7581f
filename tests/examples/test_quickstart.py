"""The quick-start as a newcomer runs it."""

import re
import signal
import sys
from pathlib import Path

import pytest

from examples.quickstart_scripts import load_module, run_script

STEPS, CHECKPOINT_EVERY, BYTES = 30, 8, 20_000

compare = load_module("compare")
storage = load_module("dataset").storage


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the one command worked, on a text of a few batches, and what it said."""
    folder = tmp_path_factory.mktemp("demonstration")
    options = ("--steps", STEPS, "--checkpoint-every", CHECKPOINT_EVERY, "--bytes", BYTES)
    done = run_script("run.py", folder, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return folder, done.stdout


def number(label: str, text: str) -> int:
    found = re.search(rf"^{label} +([\d,]+)$", text, re.MULTILINE)
    assert found, text
    return int(found[1].replace(",", ""))


def test_killed_and_resumed_training_is_identical(demonstration: tuple[Path, str]) -> None:
    """The kill and the end lie in other epochs than the beginning."""
    folder, said = demonstration
    summary = said.rpartition("==")[2]
    killed_at = number("killed at step", summary)
    resumed_from = number("resumed from step", summary)
    assert 12 <= killed_at <= STEPS
    assert 0 < resumed_from <= killed_at
    assert resumed_from % CHECKPOINT_EVERY == 0 or resumed_from == STEPS
    assert number("steps", summary) == STEPS
    assert number("shards", summary) == 4
    assert "losses             identical\nweights            identical\n" in summary
    assert '"licence": "PSF-2.0"' in said
    with storage(folder / "data").sync_reader() as reader:
        assert number("tokens", summary) == len(reader)
        assert len(reader) // (128 * 16) < 12
    (runs,) = folder.glob("runs-*")
    for run in ("uninterrupted", "killed"):
        assert {path.name for path in (runs / run).glob("step-*")} == {
            "step-00000024",
            "step-00000030",
        }


def test_training_learns(demonstration: tuple[Path, str]) -> None:
    folder, _ = demonstration
    (log,) = folder.glob(f"runs-*/uninterrupted/{compare.LOG}")
    losses = [float(loss) for _, loss in compare.read_log(log)]
    assert losses[0] > 5
    assert losses[-1] < 3.5


def test_training_killed_while_it_saves_resumes(
    demonstration: tuple[Path, str], tmp_path: Path
) -> None:
    """Killed when the second checkpoint is there but `latest` still names the first."""
    folder, _ = demonstration
    (log,) = folder.glob(f"runs-*/uninterrupted/{compare.LOG}")
    arguments = ("train.py", folder / "data", "--run", tmp_path)
    options = ("--steps", 3, "--checkpoint-every", 1)
    done = run_script(*arguments, *options, kill_at=(1, "replace"))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (tmp_path / "step-00000002").exists()
    done = run_script(*arguments, *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("resume from step 1\n")
    expected = compare.read_log(log)
    found = compare.read_log(tmp_path / compare.LOG)
    assert [step for step, _ in found] == [1, 2, 2, 3]
    assert all(expected[step - 1] == (step, loss) for step, loss in found)


def message_of(script: str, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    """What a script ends with, run in this process."""
    module = load_module(script)
    monkeypatch.setattr(module, "compute_deterministically", lambda: None, raising=False)
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        module.main()
    return ended.value.code


def test_ordinary_failures_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = message_of("train", monkeypatch, tmp_path / "nowhere", "--run", tmp_path / "run")
    assert re.fullmatch(r"train\.py: .*nowhere.*", str(said))

    assert run_script("write.py", tmp_path / "data", "--bytes", 0).returncode == 0
    said = message_of("train", monkeypatch, tmp_path / "data", "--run", tmp_path / "run")
    assert re.fullmatch(r"train\.py: .*data has less text than one batch; write more", str(said))

    (tmp_path / "file").touch()
    said = message_of("run", monkeypatch, tmp_path / "file")
    assert re.fullmatch(r"run\.py: .*File exists.*", str(said))
    said = message_of("write", monkeypatch, tmp_path / "file" / "data")
    assert re.fullmatch(r"write\.py: .*Not a directory.*", str(said))

    for every, steps in ((8, 15), (1, 30)):
        options = ("--steps", steps, "--checkpoint-every", every)
        assert message_of("run", monkeypatch, tmp_path, *options) == 2
        error = capfd.readouterr().err
        assert error.endswith("must be at least 2 and at most half of --steps\n")


def test_a_training_that_ends_before_the_kill_is_reported(tmp_path: Path) -> None:
    run = load_module("run")
    with pytest.raises(run.StageError, match=r"ended before it could be killed; try more --steps"):
        run.run_and_kill([sys.executable, "-c", ""], tmp_path / "log", 1)


def test_a_failing_stage_is_reported() -> None:
    run = load_module("run")
    with pytest.raises(run.StageError, match=r"^write\.py ended with exit code 1$"):
        run.run_to_the_end(run.command("write.py", "/dev/null/data"))
