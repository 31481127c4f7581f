"""`guideloom.open` where fields hold types of ml_dtypes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import guideloom
from format.field_cases import EXTENSIONS, assert_same_bits, every_value
from guideloom import (
    MissingPackageError,
    StreamStorage,
    StreamWithMetaStorage,
    UnsupportedFormatError,
)
from guideloom_format import Header
from read.field_streams import each_kind, fields_of, storage_of, write


def unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype([(name, f"<u{dtype[name].itemsize}") for name in dtype.names or ()])


def with_views(directory: Path, views: Mapping[str, Any]) -> None:
    """Let the header of a dataset name other types."""
    path = directory / "guideloom.json"
    header = Header.decode(path.read_bytes())
    parameters: Any = header.storage_format["parameters"]
    parameters["views"] = dict(views)
    path.write_bytes(header.encode())


@each_kind
@pytest.mark.parametrize("dtype", EXTENSIONS, ids=str)
def test_opening_finds_the_types(kind: str, dtype: np.dtype[Any], tmp_path: Path) -> None:
    fields = np.dtype([("n", "<u2"), ("x", dtype, (2,))])
    values = every_value(dtype).reshape(-1, 2)
    write(storage_of(kind, tmp_path, fields), [{"n": np.arange(len(values)), "x": values}])
    opened: Any = guideloom.open(tmp_path)
    assert type(opened) is (StreamStorage if kind == "stream" else StreamWithMetaStorage)
    with opened.sync_reader() as reader:
        found = fields_of(reader.read(0, len(values)))["x"]
    assert found.dtype == dtype
    assert_same_bits(found, values)


@each_kind
@pytest.mark.parametrize("unreadable", ["not installed", "unknown type"])
def test_what_cannot_be_opened_can_be_read_as_bits(
    kind: str, unreadable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors say: pass a storage format with unsigned integers. It works."""
    dtype = np.dtype([("x", ml_dtypes.bfloat16), ("y", ml_dtypes.float8_e5m2)])
    values = {name: np.arange(9).astype(dtype[name]) for name in ("x", "y")}
    write(storage_of(kind, tmp_path, dtype), [values])
    expected: type[Exception] = MissingPackageError
    text = r"holds fields of types \['bfloat16', 'float8_e5m2'\], .* pip install ml_dtypes"
    if unreadable == "not installed":
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    else:
        expected = UnsupportedFormatError
        text = "field 'y' is said to hold 'float8_e9m9', which is not a type of ml_dtypes"
        with_views(tmp_path, {"x": "bfloat16", "y": "float8_e9m9"})
    with pytest.raises(expected, match=f"{tmp_path.name}.*{text}"):
        guideloom.open(tmp_path)
    form = storage_of(kind, tmp_path, unsigned(dtype)).storage_format
    opened: Any = guideloom.open(tmp_path, form)
    with opened.sync_reader() as reader:
        found = fields_of(reader.read(2, 3))
        for name in ("x", "y"):
            bits = values[name][2:5].view(f"u{dtype[name].itemsize}")
            assert found[name].tolist() == bits.tolist()
