"""The dumps of files in the format page are those of files that the packages write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format.independent_documents import IndependentDocuments
from format.independent_spans import IndependentSpans
from format.independent_writing import (
    DATASET_ID,
    MadePart,
    checksums,
    document_part,
    made_parts,
    span_part,
)
from guideloom import (
    DocumentBytesFormat,
    DocumentStorage,
    StreamSpansFormat,
    StreamWithMetaStorage,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "format.md"
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

DOCUMENTS = [b"ab", b"", b"cde"]
ELEMENTS = np.array([1000, 1001, 1002, 1003, 1004], "<u2")
SPANS = [(2, b"x"), (0, b"yy"), (3, b"zzz")]


def dump(content: bytes) -> str:
    """As `hexdump -C` prints it: 16 bytes in a line, and where it ends."""
    lines = []
    for at in range(0, len(content), 16):
        row = content[at : at + 16]
        halves = [" ".join(f"{byte:02x}" for byte in half) for half in (row[:8], row[8:])]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {halves[0]:<23}  {halves[1]:<23}  |{text}|\n")
    return "".join(lines) + (f"{len(content):08x}\n" if content else "")


def block_of(part: MadePart, roles: list[str]) -> str:
    """The block of the page: each file of the part, and then that of its checksums."""
    files = {}
    for role in roles:
        files[role] = part.contents[role]
        files[f"{role}.crc"] = checksums(DATASET_ID, part, role)
    return "".join(f".{role}\n{dump(content)}" for role, content in files.items())


def written_documents(path: Path) -> MadePart:
    with DocumentStorage(path, DocumentBytesFormat()).sync_writer() as writer:
        for document in DOCUMENTS:
            writer.append(4, document)
    return made_parts(IndependentDocuments(path))[0]


def written_spans(path: Path) -> MadePart:
    form = StreamSpansFormat(ELEMENTS.dtype, DocumentBytesFormat())
    with StreamWithMetaStorage(path, form).sync_writer() as writer:
        writer.append(4, (ELEMENTS, [n for n, _ in SPANS], [payload for _, payload in SPANS]))
    return made_parts(IndependentSpans(path))[0]


EXAMPLES: list[tuple[Any, MadePart, list[str]]] = [
    (written_documents, document_part(4, 1, DOCUMENTS), ["documents", "ends"]),
    (
        written_spans,
        span_part(4, 1, ELEMENTS.tobytes(), SPANS),
        ["elements", "spans", "payloads"],
    ),
]
examples = pytest.mark.parametrize("write, part, roles", EXAMPLES, ids=["documents", "spans"])


@examples
def test_the_page_shows_what_the_packages_write(
    tmp_path: Path, write: Any, part: MadePart, roles: list[str]
) -> None:
    """Data as they are; checksums depend on the place, so they are made for the stated one."""
    written = write(tmp_path)
    assert {role: written.contents[role] for role in roles} == dict(part.contents)
    shown = [block for block in BLOCKS if block.startswith(f".{roles[0]}\n")]
    assert shown == [block_of(part, roles)]


def test_a_dump_is_that_of_hexdump() -> None:
    """Lines of 16 bytes as the tool prints them; what it leaves out, lines that repeat, is none."""
    assert dump(b"") == ""
    assert dump(bytes(range(60, 77))) == (
        "00000000  3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b  |<=>?@ABCDEFGHIJK|\n"
        "00000010  4c                                                |L|\n"
        "00000011\n"
    )
