"""Headers that name types of ml_dtypes: what is taken from them, and opened as what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from format.field_cases import EXTENSIONS
from guideloom_format import (
    DocumentBytesFormat,
    Header,
    MismatchError,
    MissingPackageError,
    StreamNumpyFormat,
    StreamSpansFormat,
    UnsupportedFormatError,
)
from guideloom_format._built_in import built_in_format, check_same_format, describe

E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)


def one_field(dtype: Any) -> np.dtype[Any]:
    return np.dtype([("x", dtype)])


def bits_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"<u{dtype.itemsize}")


def header_with(views: Any, fields: Any, kind: str = "stream") -> Header:
    parameters = {"views": views}
    if kind == "stream-with-meta":
        parameters["payload_format"] = {"name": "document-bytes", "parameters": {}}
    name = "stream-numpy" if kind == "stream" else "stream-spans"
    return Header(kind, np.dtype(fields), {"name": name, "parameters": parameters})


BYTE = [("x", "u1")]
NO_TYPE = [
    *("", "nothing", "float8", "float99_e1m1", "bfloat16 ", "BFLOAT16", "numpy", "np", "float32"),
    *("__class__", "__name__", "__version__", "__all__", "__loader__", "_finfo", "finfo", "iinfo"),
    *(None, True, 1, ["int4"], {"int4": 1}, "ml_dtypes.int4", "complex32", "\ud800", "x" * 5000),
]


@pytest.mark.parametrize("kind", ["stream", "stream-with-meta"])
@pytest.mark.parametrize("name", NO_TYPE, ids=lambda name: ascii(name)[:20])
def test_an_unknown_type_in_a_header(name: Any, kind: str) -> None:
    """Of a newer ml_dtypes, or of nobody."""
    with pytest.raises(
        UnsupportedFormatError,
        match=r"^the dataset: field 'x' is said to hold .*, which is not a type of ml_dtypes of "
        r"the field's size; install a newer ml_dtypes, or pass a storage format with unsigned "
        "integers for the field$",
    ):
        built_in_format(header_with({"x": name}, BYTE, kind), "the dataset")


@pytest.mark.parametrize("name", sorted(vars(ml_dtypes)))
def test_nothing_but_a_type_of_the_package_is_taken(name: str) -> None:
    """Whatever else the module has; and in any field of the right size, whatever its shape."""
    stored = {dtype.name: dtype for dtype in EXTENSIONS}
    for size in (1, 2, 4, 8):
        header = header_with({"x": name}, [("x", f"<u{size}", (2, 3)), ("y", "u1")])
        if name in stored and stored[name].itemsize == size:
            fields = built_in_format(header, "there").fields()
            assert fields == {"x": (stored[name], (2, 3)), "y": (np.dtype("u1"), ())}
        else:
            with pytest.raises(UnsupportedFormatError, match=r"^there: field 'x' is said to hold"):
                built_in_format(header, "there")


@pytest.mark.parametrize(
    "fields",
    [
        [("y", "<u2")],
        [("x", "<i2")],
        [("x", "<f2")],
        [("x", "V2")],
        [("x", "S2")],
        [("x", [("a", "<u2")])],
        [("y", [("x", "<u2")])],
        [("x", "u1")],
        [("x", "u1", (2,))],
        [("x", "<u4")],
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["stream", "stream-with-meta"])
def test_a_view_of_a_field_that_does_not_fit(fields: Any, kind: str) -> None:
    with pytest.raises(UnsupportedFormatError, match="field 'x' is said to hold 'bfloat16'"):
        built_in_format(header_with({"x": "bfloat16"}, fields, kind), "there")


def test_elements_without_fields_have_no_views() -> None:
    with pytest.raises(UnsupportedFormatError, match="field 'x' is said to hold 'bfloat16'"):
        built_in_format(header_with({"x": "bfloat16"}, "<u2", "stream-with-meta"), "there")


@pytest.mark.parametrize("kind", ["stream", "stream-with-meta"])
def test_without_the_package_the_message_says_what_to_do(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    header = header_with({"x": "bfloat16", "y": "int4"}, [("x", "<u2"), ("y", "u1")], kind)
    with pytest.raises(
        MissingPackageError,
        match=r"^there holds fields of types \['bfloat16', 'int4'\], which the package ml_dtypes "
        r"has\. Install it with: pip install ml_dtypes\. Or pass a storage format with unsigned "
        r"integers for these fields, to have their bits$",
    ):
        built_in_format(header, "there")
    plain = header_with({}, [("x", "<u2")], kind)
    assert built_in_format(plain, "there").stream_dtype == np.dtype([("x", "<u2")])


def test_who_does_not_use_them_needs_no_package(tmp_path: Path) -> None:
    script = f"""
import sys
sys.modules["ml_dtypes"] = None
import guideloom, numpy as np
storage = guideloom.StreamStorage({str(tmp_path)!r}, guideloom.StreamNumpyFormat([("x", "<u2")]))
with storage.sync_writer() as writer:
    writer.append(0, {{"x": np.arange(5)}})
with guideloom.open({str(tmp_path)!r}).sync_reader() as reader:
    print(reader.read(1, 3)["x"].tolist())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[1, 2, 3]\n", "")


# Opened as something else


def spans(dtype: Any) -> StreamSpansFormat:
    return StreamSpansFormat(dtype, DocumentBytesFormat())


def header_of(form: Any) -> Header:
    kind = "stream" if isinstance(form, StreamNumpyFormat) else "stream-with-meta"
    return Header(kind, form.stream_dtype, describe(form))


@pytest.mark.parametrize("make", [StreamNumpyFormat, spans])
@pytest.mark.parametrize("written", EXTENSIONS, ids=str)
def test_no_type_is_read_as_another(make: Any, written: np.dtype[Any]) -> None:
    """Also where the bits have the same size. But the bits may be asked for, and given a type."""
    header = header_of(make(one_field(written)))
    for opened in [written, bits_of(written)]:
        check_same_format(header, make(one_field(opened)), "there")
    check_same_format(header_of(make(one_field(bits_of(written)))), make(one_field(written)), "")
    for opened in EXTENSIONS:
        if opened != written and opened.itemsize == written.itemsize:
            with pytest.raises(MismatchError, match=f"^there .*{written.name}.*{opened.name}"):
                check_same_format(header, make(one_field(opened)), "there")


@pytest.mark.parametrize("make", [StreamNumpyFormat, spans])
def test_the_field_that_differs_counts(make: Any) -> None:
    header = header_of(make(np.dtype([("a", E4M3), ("b", E4M3)])))
    check_same_format(header, make(np.dtype([("a", "u1"), ("b", E4M3)])), "there")
    for fields in ([("a", E4M3), ("b", E5M2)], [("a", "u1"), ("b", E5M2)]):
        with pytest.raises(MismatchError, match="float8"):
            check_same_format(header, make(np.dtype(fields)), "there")
