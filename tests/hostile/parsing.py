"""Parsing of hostile files, in processes of their own: what it takes, and whether they end."""

from __future__ import annotations

import contextlib
import sys

import numpy as np

from guideloom_format import DamagedFileError, Manifest, crc32c
from guideloom_format._parts import DOCUMENT, ROLES_OF_KIND, PartTable
from guideloom_format._sealed import unseal
from hostile.watching import peak_mib, reset_peak

DATASET_ID = "0" * 32


def manifest_of(parts: int) -> bytes:
    """A manifest of so many parts, as a writer makes them."""
    number = np.arange(parts, dtype=np.int64)
    tokens = (number * 1_234_567_891_234_567).astype(np.uint64)
    stems = [
        f"{shard // 1000:04}/{shard:07}-0000-{token:016x}"
        for shard, token in zip(number.tolist(), tokens.tolist(), strict=True)
    ]
    sizes = {"documents": 800, "ends": 800}
    table = PartTable(
        shard=number,
        part=np.zeros_like(number),
        token=tokens,
        length=np.full_like(number, 100),
        stem=np.array(stems, dtype=np.bytes_),
        nbytes={role: np.full_like(number, sizes.get(role, 4)) for role in ROLES_OF_KIND[DOCUMENT]},
        crc32c={
            role: (number * 2_654_435_761 % 2**32).astype(np.uint32)
            for role in ROLES_OF_KIND[DOCUMENT]
        },
    )
    return Manifest(DATASET_ID, 1, table).encode()


def memory_of_parsing(file: bytes) -> float:
    """The most memory that was in use meanwhile, as a multiple of the file's size."""
    reset_peak()
    before = peak_mib()
    with contextlib.suppress(DamagedFileError):  # a hostile one
        Manifest.decode(file, dataset_id=DATASET_ID, kind=DOCUMENT, itemsize=1)
    return (peak_mib() - before) / (len(file) / 2**20)


def said_of_nesting(depth: int, recursion_limit: int) -> str:
    """The error for a file that is nested so deep, in a process with this recursion limit."""
    sys.setrecursionlimit(recursion_limit)
    body = b'{"x": ' + b"[" * depth + b"]" * depth
    try:
        unseal(body + b',\n"crc32c": "%08x"\n}\n' % crc32c(body), "x")
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        return f"{type(error).__name__}: {error}"
    return ""
