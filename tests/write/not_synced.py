"""A fixture for tests in which processes die and no machine does: nobody waits for the disk."""

from __future__ import annotations

import pytest

from guideloom_write._files import PosixFiles
from write.shard_jobs import NO_SYNC


def do_not_sync(patch: pytest.MonkeyPatch) -> None:
    """Neither this process nor those that it starts wait for the disk."""
    patch.setenv(NO_SYNC, "1")
    for name in ("sync", "sync_folder"):
        patch.setattr(PosixFiles, name, lambda *_: None)


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_sync(monkeypatch)
