"""The fuzz targets: each parser and decoder that meets bytes which someone else may have written.

A target is one module with a `TARGET`. Modules are imported when they are asked for, so that an
instrumented run instruments what they import, and one of a small parser does not load torch.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from targets.base import Target

CORPUS = Path(__file__).resolve().parent.parent / "corpus"

NAMES = (
    "sealed",
    "header",
    "record",
    "manifest",
    "owner_note",
    "job",
    "names",
    "element_type",
    "document_index",
    "split",
    "span_index",
    "document_json",
    "document_numpy",
    "stream_numpy",
    "stream_spans",
    "document_dataset",
    "span_dataset",
    "loose_files",
    "loader_state",
)


def load(name: str) -> Target:
    """The target of this name."""
    target: Target = importlib.import_module(f"targets.{name}").TARGET
    assert target.name == name
    return target


def corpus_files(name: str) -> list[Path]:
    """The committed inputs of a target: some of them once made it fail."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
