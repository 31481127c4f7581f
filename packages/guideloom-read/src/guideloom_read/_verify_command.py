"""The command ``python -m guideloom_read.verify DIRECTORY``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from guideloom_format import GuideLoomError
from guideloom_read._verify import verify
from guideloom_read._verify_report import LEVELS

CLEAN, FAULTS, USAGE, NOT_FOUND = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; the exit status.

    Returns:
        0 if there is no fault, 1 if there are, 2 for wrong arguments, 3 if there is no dataset, or
        it cannot be read.
    """
    parser = argparse.ArgumentParser(
        prog="python -m guideloom_read.verify",
        description="Check a dataset. Exit status: 0 clean, 1 faults, 2 usage, 3 no dataset.",
    )
    parser.add_argument("directory", help="of the dataset")
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default="everything",
        help="structure: no data is read; sample: and some blocks of data; everything (default)",
    )
    parser.add_argument(
        "--sample-blocks",
        type=int,
        default=1000,
        metavar="N",
        help="blocks of 64 KiB in a sample (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the sample (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    try:
        report = verify(
            given.directory,
            level=given.level,
            sample_blocks=given.sample_blocks,
            seed=given.seed,
        )
    except GuideLoomError as error:
        sys.stderr.write(f"{error}\n")
        return NOT_FOUND
    except ValueError as error:
        parser.error(str(error))
    sys.stdout.write(f"{report}\n")
    return CLEAN if report.clean else FAULTS
