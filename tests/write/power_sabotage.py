"""File operations that leave out a sync, or do it too late: the power loss must show it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from guideloom_format import _names
from write.power_machine import Death, Machine, MachineFiles

FilesClass = Callable[[Machine, Death | None], MachineFiles]
RECORD = re.compile(rf"/{_names.COMMITS}/[0-9-]+\.json")


class Forgetful(MachineFiles):
    """Syncs nothing whose number and path this says it forgets.

    Attributes:
        syncs: paths of all syncs that were asked for, with a slash behind those of folders.
    """

    def __init__(
        self,
        machine: Machine,
        die_at: Death | None,
        forgets: Callable[[int, str], bool],
        syncs: list[str],
    ) -> None:
        super().__init__(machine, die_at)
        self._forgets = forgets
        self.syncs = syncs

    def sync(self, descriptor: int) -> None:
        self.syncs.append(self.path_of(descriptor))
        if not self._forgets(len(self.syncs), self.syncs[-1]):
            super().sync(descriptor)

    def sync_folder(self, path: str) -> None:
        self.syncs.append(f"{path}/")
        if not self._forgets(len(self.syncs), self.syncs[-1]):
            super().sync_folder(path)


class SyncsDataLate(MachineFiles):
    """Syncs data files when the record that names them was linked."""

    def __init__(self, machine: Machine, die_at: Death | None) -> None:
        super().__init__(machine, die_at)
        self._late: dict[str, None] = {}

    def sync(self, descriptor: int) -> None:
        path = self.path_of(descriptor)
        if f"/{_names.DATA}/" in path:
            self._late[path] = None
        else:
            super().sync(descriptor)

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        if RECORD.search(target):
            for path in self._late:
                descriptor = self.reopen(path)
                super().sync(descriptor)
                self.close(descriptor)
            self._late.clear()


def forgetting(forgets: Callable[[int, str], bool], syncs: list[str] | None = None) -> FilesClass:
    """All processes together forget the syncs for whose number, from 1, and path this is true."""
    return partial(Forgetful, forgets=forgets, syncs=[] if syncs is None else syncs)


def first_of(path: str) -> Callable[[int, str], bool]:
    """The first sync of this path, in all processes together."""
    done: list[str] = []

    def forgets(number: int, found: str) -> bool:
        del number
        if found != path or done:
            return False
        done.append(found)
        return True

    return forgets


def every_file(number: int, path: str) -> bool:
    del number
    return not path.endswith("/")


def every_folder(number: int, path: str) -> bool:
    del number
    return path.endswith("/")


def copies_of_manifests(number: int, path: str) -> bool:
    del number
    return f"/{_names.MANIFEST}" in path
