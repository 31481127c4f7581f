"""Checksums of data files and the ends in them, for `verify`.

Parts are looked at in groups whose files fit into a buffer together, so that many small files cost
one call of the backend; a large file goes through the buffer in steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from guideloom_format import (
    BLOCK_BYTES,
    DatasetError,
    FileIdentity,
    Header,
    IOFiles,
    IOSession,
    PartTable,
    ReadError,
    block_checksums,
    crc32c,
)
from guideloom_format._checksum import CRC_SUFFIX, block_count
from guideloom_format._parts import DATA_ROLES
from guideloom_read._verify_ends import EndsCheck
from guideloom_read._verify_report import Fault, VerifyReport

_STEP_BYTES = 16 * BLOCK_BYTES
_MOST_PARTS = 64


class DataCheck:
    """Checks the data files of one dataset.

    Args:
        session: of the backend.
        header: of the dataset.
        table: of its parts.
        sound: for each role, which files have their size; others are not read.
        report: takes the faults.
    """

    def __init__(
        self,
        session: IOSession,
        header: Header,
        table: PartTable,
        sound: dict[str, NDArray[np.bool_]],
        report: VerifyReport,
    ) -> None:
        self._session = session
        self._header = header
        self._table = table
        self._sound = sound
        self._report = report
        self._buffer = np.empty(_STEP_BYTES + _MOST_PARTS * BLOCK_BYTES // 64, dtype=np.uint8)

    def everything(self) -> None:
        """All blocks of all files."""
        for role in DATA_ROLES[self._header.kind]:
            for group in self._groups(role):
                try:
                    faults = list(self._faults(role, group))
                except ReadError:
                    raise
                except DatasetError:  # which file it is, one at a time shows
                    faults = [fault for k in group for fault in self._alone(role, k)]
                self._report.faults += faults

    def sample(self, blocks: int, seed: int) -> None:
        """So many blocks over all files, chosen at random; all, if there are fewer."""
        roles = DATA_ROLES[self._header.kind]
        counts = np.concatenate(
            [
                np.where(self._readable(role), -(-self._table.nbytes[role] // BLOCK_BYTES), 0)
                for role in roles
            ]
        )
        stops = np.cumsum(counts)
        total = int(stops[-1]) if stops.size else 0
        if blocks >= total:
            chosen = np.arange(total)
        else:
            chosen = np.sort(np.random.default_rng(seed).choice(total, blocks, replace=False))
        for number in chosen.tolist():
            at = int(np.searchsorted(stops, number, side="right"))
            role, k = roles[at // len(self._table)], at % len(self._table)
            self._check_block(role, k, number - int(stops[at] - counts[at]))

    def _readable(self, role: str) -> NDArray[np.bool_]:
        return self._sound[role] & self._sound[role + CRC_SUFFIX]

    def _groups(self, role: str) -> Iterator[list[int]]:
        """Parts whose files of this role fit into the buffer together, or one that does not."""
        group: list[int] = []
        size = 0
        for k in np.flatnonzero(self._readable(role)).tolist():
            nbytes = int(self._table.nbytes[role][k])
            if group and (size + nbytes > _STEP_BYTES or len(group) == _MOST_PARTS):
                yield group
                group, size = [], 0
            group.append(k)
            size += nbytes
        if group:
            yield group

    def _alone(self, role: str, k: int) -> Iterator[Fault]:
        try:
            yield from self._faults(role, [k])
        except ReadError:
            raise
        except DatasetError as error:
            size = int(self._table.nbytes[role][k])
            yield Fault(self._table.file_name(k, role), 0, size, str(error))

    def _faults(self, role: str, group: list[int]) -> Iterator[Fault]:
        """The faults of the files of a group, and of the files of their checksums."""
        crc_role = role + CRC_SUFFIX
        names = [self._table.file_name(k, name) for name in (role, crc_role) for k in group]
        sizes = np.concatenate([self._table.nbytes[name][group] for name in (role, crc_role)])
        files = self._session.open_files(names, sizes)
        try:
            if len(group) == 1:
                yield from self._in_steps(files, role, group[0])
                return
            places = np.append(0, np.cumsum(sizes))
            rows = np.zeros((sizes.size, 4), dtype=np.int64)
            rows[:, 0], rows[:, 2], rows[:, 3] = np.arange(sizes.size), sizes, places[:-1]
            out = self._buffer[: places[-1]]
            files.fill(rows[sizes > 0], out)
            pieces = [out[a:b] for a, b in pairwise(places.tolist())]
            for n, k in enumerate(group):
                whole = _Whole(self._header, self._table, k, role)
                yield from whole.step(pieces[n], pieces[len(group) + n])
                yield from whole.end()
                self._report.nbytes += pieces[n].size
        finally:
            files.close()

    def _in_steps(self, files: IOFiles, role: str, k: int) -> Iterator[Fault]:
        size = int(self._table.nbytes[role][k])
        whole = _Whole(self._header, self._table, k, role)
        for start in range(0, size, _STEP_BYTES):
            nbytes = min(size - start, _STEP_BYTES)
            blocks = block_count(nbytes)
            rows = [[0, start, nbytes, 0], [1, 4 * (start // BLOCK_BYTES), 4 * blocks, nbytes]]
            out = self._buffer[: nbytes + 4 * blocks]
            files.fill(np.array(rows, dtype=np.int64), out)
            yield from whole.step(out[:nbytes], out[nbytes:])
            self._report.nbytes += nbytes
        yield from whole.end()

    def _check_block(self, role: str, k: int, block: int) -> None:
        table = self._table
        names = [table.file_name(k, role), table.file_name(k, role + CRC_SUFFIX)]
        sizes = np.array([table.nbytes[role][k], table.nbytes[role + CRC_SUFFIX][k]])
        start = block * BLOCK_BYTES
        nbytes = min(int(sizes[0]) - start, BLOCK_BYTES)
        out = self._buffer[: nbytes + 4]
        try:
            files = self._session.open_files(names, sizes)
            try:
                files.fill(np.array([[0, start, nbytes, 0], [1, 4 * block, 4, nbytes]]), out)
            finally:
                files.close()
        except ReadError:
            raise
        except DatasetError as error:
            self._report.faults.append(Fault(names[0], start, start + nbytes, str(error)))
            return
        whole = _Whole(self._header, table, k, role, first_block=block)
        self._report.faults += whole.blocks(out[:nbytes], out[nbytes:])
        self._report.nbytes += nbytes


class _Whole:
    """One data file from its beginning to its end, or from one of its blocks."""

    def __init__(
        self, header: Header, table: PartTable, k: int, role: str, first_block: int = 0
    ) -> None:
        self._table, self._k, self._role = table, k, role
        token = f"{int(table.token[k]):016x}"
        place = int(table.shard[k]), int(table.part[k])
        self._seed = FileIdentity(header.dataset_id, *place, token, role).seed()
        self._name = table.file_name(k, role)
        self._block = first_block
        self._crc = self._crc_of_checksums = 0
        self._ends = EndsCheck(header, table, k, role)

    def step(self, data: NDArray[np.uint8], stored: NDArray[np.uint8]) -> Iterator[Fault]:
        """Faults of the next blocks, whose checksums are stored."""
        yield from self.blocks(data, stored)
        for problem in self._ends.faults(data):
            yield Fault(self._name, *problem)

    def blocks(self, data: NDArray[np.uint8], stored: NDArray[np.uint8]) -> Iterator[Fault]:
        """Blocks that have not the checksums that are stored."""
        found, self._crc = block_checksums(self._seed, self._block, data, self._crc)
        self._crc_of_checksums = crc32c(stored, self._crc_of_checksums)
        if found.tobytes() != stored.tobytes():
            at = self._block * BLOCK_BYTES
            expected = np.frombuffer(stored.tobytes(), dtype="<u4")
            for bad in np.flatnonzero(found != expected).tolist():
                start = at + bad * BLOCK_BYTES
                yield Fault(
                    self._name,
                    start,
                    min(start + BLOCK_BYTES, at + data.size),
                    f"block {self._block + bad} has the checksum {int(found[bad]):08x}, "
                    f"{int(expected[bad]):08x} was stored. The block is damaged, or belongs "
                    "elsewhere: restore the file from a copy",
                )
        self._block += found.size

    def end(self) -> Iterator[Fault]:
        """Faults of the file as a whole, and of the file of its checksums."""
        for problem in self._ends.faults_of_the_end():
            yield Fault(self._name, *problem)
        crcs = {self._role: self._crc, self._role + CRC_SUFFIX: self._crc_of_checksums}
        for role, found in crcs.items():
            committed = int(self._table.crc32c[role][self._k])
            if found != committed:
                yield Fault(
                    self._table.file_name(self._k, role),
                    0,
                    int(self._table.nbytes[role][self._k]),
                    f"the whole file has the checksum {found:08x}, {committed:08x} was committed. "
                    "Restore the file from a copy",
                )
