"""An append that was cut off between two files of a part is never committed.

Two interrupts in a row can keep a writer from noticing that it failed: bytes are in one file and
what belongs to them is not in the other. What is counted at the commit shows it, for every kind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom_format import WriteError
from guideloom_read import verify
from write.faulty_files import Watched
from write.known_content import KnownElements
from write.known_documents import KnownDocuments
from write.known_spans import KnownSpans

Cut = Callable[[Any], None]

KINDS = {"stream": KnownElements(), "documents": KnownDocuments(), "spans": KnownSpans()}
CUTS: list[tuple[str, str, Cut]] = [
    ("stream", "elements alone", lambda part: part._elements.write(bytes(8))),
    ("documents", "bytes without an end", lambda part: part._documents.write(b"abc")),
    ("documents", "an end without bytes", lambda part: part._ends.append(part._end)),
    ("spans", "elements alone", lambda part: part._elements.write(np.zeros(1, "u8").tobytes())),
    ("spans", "a payload alone", lambda part: part._payloads.write(b"abc")),
    ("spans", "half a row", lambda part: part._spans.append(part.length)),
]


@pytest.mark.parametrize("kind, what, cut", CUTS, ids=[f"{k}: {w}" for k, w, _ in CUTS])
def test_it_is_not_committed(kind: str, what: str, cut: Cut, tmp_path: Path) -> None:
    known: Any = KINDS[kind]
    writer = known.writer(tmp_path / "x", Watched()).open()
    known.append(writer, 0, 0, 5)
    writer.commit()
    known.append(writer, 0, 5, 9)
    cut(writer._parts[0])
    with pytest.raises(WriteError, match=r"bytes went to a file of the part, \d+ were counted"):
        writer.commit()
    writer.close()
    assert known.visible(tmp_path / "x") == {0: 5}, what
    assert verify(tmp_path / "x").clean
