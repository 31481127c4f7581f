"""The Python code in README and documentation runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {
    str(page.relative_to(ROOT)): CODE.findall(page.read_text())
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
WITH_CODE = {name: blocks for name, blocks in PAGES.items() if blocks}


def test_there_is_code_to_run() -> None:
    assert {"README.md", "docs/index.md", "docs/using.md"} <= set(WITH_CODE)


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_blocks_of_a_page_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    """Each in a process of its own, all in one folder."""
    for code in WITH_CODE[page]:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, result.stderr
