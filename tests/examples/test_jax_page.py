"""The two scripts of the page "Use another framework", as they are printed there."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted(Path(__file__).parent.glob("jax_page_*.py.txt"))


def test_both_scripts_are_there() -> None:
    assert [path.name for path in SCRIPTS] == [
        "jax_page_own_ordering.py.txt",
        "jax_page_single_process.py.txt",
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_runs(script: Path, tmp_path: Path) -> None:
    """Without an error and without a warning, and it leaves nothing behind."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={"PATH": "", "JAX_PLATFORMS": "cpu", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
