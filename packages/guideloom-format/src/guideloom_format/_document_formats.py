"""Built-in document formats that run no code: bytes, arrays of numbers, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from guideloom_format._columns import column
from guideloom_format._documents import split
from guideloom_format._dtypes import (
    described_dtype,
    dtype_to_json,
    has_padding,
    storable_dtype,
    zero_padded,
)
from guideloom_format._errors import DamagedFileError, DataError
from guideloom_format._integers import shown
from guideloom_format._parts import DOCUMENT

MOST_NESTED = 256
Buffer = bytes | bytearray | memoryview


class DocumentBytesFormat:
    """Documents are bytes, stored as they are.

    ::

        append  b"any bytes"          bytes, bytearray, memoryview, or a 1-d uint8 array
        sample  b"any bytes"          bytes
    """

    name = "document-bytes"
    storage_kind = DOCUMENT
    document_dtype = np.dtype("u1")

    @classmethod
    def from_header(cls, parameters: Mapping[str, Any], where: str) -> DocumentBytesFormat:
        """The format that a header describes."""
        del parameters, where
        return cls()

    def parameters(self) -> dict[str, Any]:
        """What the header says of the format besides its name."""
        return {}

    def pack(self, data: Buffer | NDArray[np.uint8]) -> Buffer | NDArray[np.uint8]:
        """The document itself.

        Raises:
            DataError: not bytes.
        """
        if isinstance(data, bytes | bytearray | memoryview):
            return data
        if isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1:
            return column("the document", data, self.document_dtype)
        return self._wrong(data)

    def _wrong(self, data: object) -> NoReturn:
        if isinstance(data, str):
            raise DataError(
                "DocumentBytesFormat got str; expected bytes: encode it, for example with "
                '.encode("utf-8")'
            )
        raise DataError(
            f"DocumentBytesFormat got {_describe(data)}; expected bytes, or a 1-d uint8 array. "
            "Use DocumentNumpyFormat(dtype) for arrays of numbers"
        )

    def unpack(self, buffer: memoryview, shard: int) -> bytes:
        """The document, as bytes of its own."""
        del shard  # part of the interface
        return bytes(buffer)

    def unpack_batch(self, values: NDArray[Any], offsets: NDArray[np.int64]) -> list[bytes]:
        """The same for many documents that lie one behind the other."""
        return split(values, offsets)

    def __repr__(self) -> str:
        return "DocumentBytesFormat()"


class DocumentNumpyFormat:
    """Documents are 1-d arrays of one type, for example token ids.

    ::

        DocumentNumpyFormat("<u2")
        append  (n,) integers that fit         any n, also 0
        sample  (n,) uint16                    a view of what was read, aligned and writable

    Args:
        dtype: of the values, without Python objects; may be structured.

    Raises:
        TypeError: the dtype is not stored.
    """

    name = "document-numpy"
    storage_kind = DOCUMENT

    def __init__(self, dtype: DTypeLike) -> None:
        self.document_dtype = storable_dtype(dtype)
        self._padded = has_padding(self.document_dtype)

    @classmethod
    def from_header(cls, parameters: Mapping[str, Any], where: str) -> DocumentNumpyFormat:
        """The format that a header describes.

        Raises:
            DamagedFileError: the header describes no dtype.
        """
        return cls(described_dtype(parameters.get("dtype"), where))

    def parameters(self) -> dict[str, Any]:
        """What the header says of the format besides its name."""
        return {"dtype": dtype_to_json(self.document_dtype)}

    def pack(self, data: Any) -> NDArray[np.uint8]:
        """The array's bytes, little-endian.

        Raises:
            DataError: not 1-d, or values that do not fit.
        """
        array = np.ascontiguousarray(column("the document", data, self.document_dtype))
        if type(array) is not np.ndarray:
            array = array.view(np.ndarray)
        if self._padded:
            array = zero_padded(array)
        return array.view(np.uint8)

    def unpack(self, buffer: memoryview, shard: int) -> NDArray[Any]:
        """The document: shares the buffer's memory.

        Raises:
            DamagedFileError: its size is not a multiple of the type's.
        """
        if len(buffer) % self.document_dtype.itemsize:
            raise DamagedFileError(
                f"a document of shard {shard} has {len(buffer)} bytes; expected a multiple of "
                f"{self.document_dtype.itemsize}, the size of {self.document_dtype}. It was "
                "written with another storage format, or is damaged"
            )
        return np.frombuffer(buffer, dtype=self.document_dtype)

    def unpack_batch(self, values: NDArray[Any], offsets: NDArray[np.int64]) -> list[NDArray[Any]]:
        """The same for many documents that lie one behind the other: views of `values`."""
        bounds = offsets.tolist()
        return [values[a:b] for a, b in pairwise(bounds)]

    def __repr__(self) -> str:
        return f"DocumentNumpyFormat({self.document_dtype!r})"


class DocumentJSONFormat:
    """Documents are JSON values, for example conversations; nested at most 256 deep.

    ::

        append  {"role": "user", "turns": ["…"], "score": 0.5}
        sample  the same: dict, list, str, int, float, bool, None; a tuple comes back as a list
    """

    name = "document-json"
    storage_kind = DOCUMENT

    @classmethod
    def from_header(cls, parameters: Mapping[str, Any], where: str) -> DocumentJSONFormat:
        """The format that a header describes."""
        del parameters, where
        return cls()

    def parameters(self) -> dict[str, Any]:
        """What the header says of the format besides its name."""
        return {}

    def pack(self, data: Any) -> bytes:
        """The value as JSON in UTF-8.

        Raises:
            DataError: something that JSON does not have: other types, NaN, keys that are not str.
        """
        try:
            _check_keys(data)
            text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"DocumentJSONFormat got what JSON cannot hold: {error}. Expected dicts with str "
                "keys, lists, str, finite numbers, bool and None"
            ) from error
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:  # half a surrogate pair, which JSON can only escape
            return _escaped(data, text)

    def unpack(self, buffer: memoryview, shard: int) -> Any:
        """The value.

        Raises:
            DamagedFileError: not JSON.
        """
        try:
            return json.loads(str(buffer, "utf-8"), parse_constant=_refuse_constant)
        except ValueError as error:
            raise DamagedFileError(
                f"a document of shard {shard} is not JSON: {error}. It was written with another "
                "storage format, or is damaged"
            ) from error
        except RecursionError as error:
            raise DamagedFileError(
                f"a document of shard {shard} is nested too deep to be read here; this format "
                f"writes at most {MOST_NESTED} levels"
            ) from error

    def __repr__(self) -> str:
        return "DocumentJSONFormat()"


def _escaped(data: Any, text: str) -> bytes:
    escaped = json.dumps(data, allow_nan=False, separators=(",", ":"))
    again = json.dumps(json.loads(escaped), ensure_ascii=False, separators=(",", ":"))
    if again != text:
        raise DataError(
            "DocumentJSONFormat got a text with two halves of a surrogate pair side by side, which "
            "JSON gives back as one character; join them before"
        )
    return escaped.encode("ascii")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_keys(value: Any, depth: int = 0) -> None:
    """Refuse keys that json.dumps would turn into strings, and what could not be read again."""
    if depth > MOST_NESTED:
        raise ValueError(f"it is nested more than {MOST_NESTED} deep, or contains itself")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {shown(key)} is {type(key).__name__}")
            _check_keys(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_keys(item, depth + 1)


def _describe(data: object) -> str:
    if isinstance(data, np.ndarray):
        return f"an array of shape {data.shape} and dtype {data.dtype}"
    return type(data).__name__
