"""Checkpoints that survive a kill at any moment: `latest` always names a whole one.

::

    RUN/step-00000040/     the checkpoint before; kept, too
    RUN/step-00000060/     written under its own name first
    RUN/latest             then switched to it, by one atomic rename
"""

import os
import shutil
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import state_dict_loader, state_dict_saver


def exists(run: Path) -> bool:
    """Whether a run has a checkpoint."""
    return (run / "latest").exists()


def load(run: Path, state: dict[str, Any]) -> None:
    """Load the newest checkpoint into `state`, whose objects have `load_state_dict`."""
    state_dict_loader.load(state, checkpoint_id=run / (run / "latest").read_text())


def save(run: Path, step: int, state: dict[str, Any]) -> None:
    """Save a new checkpoint, switch to it, and remove those older than the one before."""
    folder = run / f"step-{step:08d}"
    shutil.rmtree(folder, ignore_errors=True)  # what a kill left of an earlier attempt
    state_dict_saver.save(state, checkpoint_id=folder)
    _replace(run / "latest", folder.name)
    older = sorted(path for path in run.glob("step-*") if path.name < folder.name)
    for path in older[:-1]:
        shutil.rmtree(path)


def _replace(path: Path, text: str) -> None:
    """Give a file new content, durably and at one stroke."""
    temporary = path.with_suffix(".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
