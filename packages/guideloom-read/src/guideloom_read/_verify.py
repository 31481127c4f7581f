"""`verify`: structure and checksums of a dataset, each fault with file and range.

::

    _verify_structure    header, every record, manifest and job, what they say of each other, sizes
    _verify_data         checksums of blocks and files, and the ends in them
"""

from __future__ import annotations

import os

from guideloom_format import IOReader
from guideloom_format._integers import as_index
from guideloom_read._verify_data import DataCheck
from guideloom_read._verify_report import LEVELS, Level, VerifyReport
from guideloom_read._verify_structure import orphans, survey, wrong_sizes
from guideloom_read.io import PosixPreadIO


def verify(
    directory: str | os.PathLike[str],
    io: IOReader | None = None,
    *,
    level: Level = "everything",
    sample_blocks: int = 1000,
    seed: int = 0,
) -> VerifyReport:
    """Check a dataset: its structure, the sizes of all files, and the checksums of their blocks.

    A block's checksum says where the block belongs, so blocks and files that are intact but in
    another's place are found as well.

    Args:
        directory: of the dataset.
        io: the backend; `PosixPreadIO()` when left out.
        level: ``"structure"`` reads no data file: header, records, manifests, decided jobs, and
            the sizes of all files. ``"sample"`` does that and checks some blocks, chosen at
            random. With ``"everything"`` every byte is read and checked.
        sample_blocks: how many blocks of 64 KiB a sample has, over all files.
        seed: of the choice; the same seed chooses the same blocks.

    Returns:
        a report with every fault. Memory for data stays at a few MiB, whatever the size of the
        dataset.

    Raises:
        DatasetNotFoundError: there is no dataset.
        ReadError: the storage failed.
        ValueError: no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; expected one of {', '.join(LEVELS)}")
    blocks = as_index("sample_blocks", sample_blocks, 0, 1 << 40)
    path = os.fspath(directory)
    session = (io or PosixPreadIO()).open(path)
    report = VerifyReport(level)
    try:
        found = survey(session, path, report)
        if found is None:
            return report
        header, table = found.header, found.table
        report.parts = len(table)
        sound = wrong_sizes(session, table, report)
        check = DataCheck(session, header, table, sound, report)
        if level == "everything":
            check.everything()
        elif level == "sample":
            check.sample(blocks, as_index("seed", seed, 0, None))
        report.orphans = orphans(session, found)
    finally:
        session.close()
    return report
