"""`verify`: every structure and every checksum of a dataset, each fault with file and range."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from guideloom_format import (
    BLOCK_BYTES,
    DamagedFileError,
    DatasetError,
    DatasetNotFoundError,
    Header,
    IOFiles,
    IOReader,
    IOSession,
    MissingFileError,
    PartTable,
    ReadError,
    block_checksums,
    crc32c,
)
from guideloom_format._checksum import CRC_SUFFIX, block_count
from guideloom_format._parts import DATA_ROLES
from guideloom_read._contents import read_contents, read_header
from guideloom_read._file_names import FileNames
from guideloom_read._verify_ends import end_faults
from guideloom_read.io import PosixPreadIO

_STEP_BLOCKS = 64


@dataclass(frozen=True)
class Fault:
    """Something that is not what was committed.

    Attributes:
        file: its name inside the dataset; `structure` where header, records or manifest are wrong,
            which the problem then names.
        start, stop: the bytes concerned; 0 and 0 for the whole file.
        problem: what was found and what was expected.
    """

    file: str
    start: int
    stop: int
    problem: str

    def __str__(self) -> str:
        where = f", bytes {self.start} to {self.stop}" if self.stop else ""
        return f"{self.file}{where}: {self.problem}"


@dataclass
class VerifyReport:
    """What `verify` found.

    Attributes:
        parts: parts looked at.
        nbytes: bytes of data files whose checksums were computed.
        faults: in order of the parts; empty if everything is as it was committed.
    """

    parts: int = 0
    nbytes: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

    def __bool__(self) -> bool:
        """The same, so that ``assert verify(directory)`` asserts it."""
        return self.clean

    def __str__(self) -> str:
        found = "clean" if self.clean else f"{len(self.faults)} faults"
        return "\n".join(
            [f"{found}: {self.parts} parts, {self.nbytes} bytes of data", *map(str, self.faults)]
        )


def verify(directory: str | os.PathLike[str], io: IOReader | None = None) -> VerifyReport:
    """Read a whole dataset and check all of it: structure, sizes, and the checksum of every block.

    A block's checksum says where the block belongs, so blocks and files that are intact but in
    another's place are found as well.

    Args:
        directory: of the dataset.
        io: the backend; `PosixPreadIO()` when left out.

    Returns:
        a report with every fault. Memory stays at a few MiB, whatever the size of the dataset.

    Raises:
        DatasetNotFoundError: there is no dataset.
        ReadError: the storage failed.
    """
    path = os.fspath(directory)
    session = (io or PosixPreadIO()).open(path)
    report = VerifyReport()
    try:
        try:
            header = read_header(session, path)
            table = read_contents(session, path, header).table
        except (DatasetNotFoundError, ReadError):
            raise
        except DatasetError as error:
            report.faults.append(Fault("structure", 0, 0, str(error)))
            return report
        for role in DATA_ROLES[header.kind]:
            _verify_role(session, header, table, role, report)
        report.parts = len(table)
    finally:
        session.close()
    return report


def _verify_role(
    session: IOSession, header: Header, table: PartTable, role: str, report: VerifyReport
) -> None:
    crc_role = role + CRC_SUFFIX
    data = session.open_files(FileNames(table, role), table.nbytes[role])
    checksums = session.open_files(FileNames(table, crc_role), table.nbytes[crc_role])
    try:
        for k in range(len(table)):
            try:
                _check_sizes(session, table, k, (role, crc_role))
                report.faults.extend(_part_faults(header, table, k, role, data, checksums, report))
                for problem in end_faults(header, table, k, role, data):
                    report.faults.append(Fault(table.file_name(k, role), *problem))
            except ReadError:
                raise
            except DatasetError as error:
                report.faults.append(Fault(table.file_name(k, role), 0, 0, str(error)))
    finally:
        data.close()
        checksums.close()


def _check_sizes(session: IOSession, table: PartTable, k: int, roles: tuple[str, ...]) -> None:
    """Whether the files of a part are there with their sizes; backends look when they read."""
    for role in roles:
        name, stated = table.file_name(k, role), int(table.nbytes[role][k])
        try:
            found = session.file_size(name)
        except FileNotFoundError as error:
            raise MissingFileError(
                f"the file was committed with {stated} bytes and is not there: {name}. "
                "Restore it from a copy"
            ) from error
        if found != stated:
            raise DamagedFileError(
                f"{name} has {found} bytes; {stated} were committed. Restore it from a copy"
            )


def _part_faults(
    header: Header,
    table: PartTable,
    k: int,
    role: str,
    data: IOFiles,
    checksums: IOFiles,
    report: VerifyReport,
) -> Iterator[Fault]:
    row = table.row(k)
    size = row.files[role].nbytes
    seed = row.identity(header.dataset_id, role).seed()
    whole = whole_checksums = 0
    name = table.file_name(k, role)
    for first in range(0, block_count(size), _STEP_BLOCKS):
        start = first * BLOCK_BYTES
        chunk = _read(data, k, start, min(size - start, _STEP_BLOCKS * BLOCK_BYTES))
        stored = _read(checksums, k, 4 * first, 4 * block_count(chunk.size))
        whole_checksums = crc32c(stored, whole_checksums)
        report.nbytes += chunk.size
        found, whole = block_checksums(seed, first, chunk, whole)
        for bad in np.flatnonzero(found != stored.view("<u4")).tolist():
            at = start + bad * BLOCK_BYTES
            yield Fault(
                name,
                at,
                min(at + BLOCK_BYTES, size),
                f"block {first + bad} has the checksum {int(found[bad]):08x}, "
                f"{int(stored.view('<u4')[bad]):08x} was stored. The block is damaged, or belongs "
                "elsewhere: restore the file from a copy",
            )
    if whole != row.files[role].crc32c:
        yield _whole_fault(name, whole, row.files[role].crc32c)
    crc_role = role + CRC_SUFFIX
    if whole_checksums != row.files[crc_role].crc32c:
        yield _whole_fault(
            table.file_name(k, crc_role), whole_checksums, row.files[crc_role].crc32c
        )


def _whole_fault(name: str, found: int, committed: int) -> Fault:
    return Fault(
        name,
        0,
        0,
        f"the whole file has the checksum {found:08x}, {committed:08x} was committed. "
        "Restore the file from a copy",
    )


def _read(files: IOFiles, k: int, offset: int, nbytes: int) -> NDArray[np.uint8]:
    out = np.empty(nbytes, dtype=np.uint8)
    files.fill(np.array([[k, offset, nbytes, 0]], dtype=np.int64), out)
    return out
