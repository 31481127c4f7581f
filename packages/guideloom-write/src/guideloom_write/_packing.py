"""What a storage format's `pack` returned, checked before anything is touched.

A custom format is a plain class, so everything that it can get wrong is named here in its own
terms: another type, shape, dtype or length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DataError
from guideloom_format._dtypes import has_padding, zero_padded
from guideloom_format._integers import index_array, shown
from guideloom_format._masked import is_masked
from guideloom_format._stream_spans import NOT_LISTS
from guideloom_write._checked_file import Bytes
from guideloom_write._span_pairs import runs_of_pairs

_BYTE = np.dtype("u1")


class ElementPacker:
    """Elements of a stream: 1-d arrays of the storage's element type, as bytes."""

    def __init__(self, storage_format: Any, element_type: np.dtype[Any]) -> None:
        self._format = storage_format
        self._dtype = element_type
        self._padded = has_padding(element_type)

    def pack(self, data: Any) -> NDArray[Any]:
        """The elements of `data`.

        Raises:
            DataError: `pack` returned something else.
        """
        return self.checked(self._format.pack(data))

    def checked(self, elements: Any) -> NDArray[Any]:
        """`elements`, contiguous, with zeros for padding."""
        array: NDArray[Any]
        if is_masked(elements):
            raise DataError(
                f"{type(self._format).__name__}.pack returned a masked array; give values to all "
                "with .filled(value)"
            )
        if (
            not isinstance(elements, np.ndarray)
            or elements.dtype != self._dtype
            or elements.ndim != 1
        ):
            raise self._wrong(elements)
        array = elements if type(elements) is np.ndarray else elements.view(np.ndarray)
        return array if array.flags.c_contiguous and not self._padded else zero_padded(array)

    def _wrong(self, elements: Any) -> DataError:
        name = type(self._format).__name__
        expected = f"a 1-d numpy array of {self._dtype}"
        if not isinstance(elements, np.ndarray):
            return DataError(f"{name}.pack returned {type(elements).__name__}; expected {expected}")
        return DataError(
            f"{name}.pack returned an array of shape {elements.shape} and dtype "
            f"{elements.dtype}; expected {expected}"
        )


class DocumentPacker:
    """Documents: any contiguous buffer of bytes, or of the storage's element type."""

    def __init__(self, storage_format: Any, element_type: np.dtype[Any]) -> None:
        self._format = storage_format
        self._pack = storage_format.pack
        self._dtype = element_type
        self._itemsize = element_type.itemsize
        self._what = f"{type(storage_format).__name__}.pack returned"

    def pack(self, data: Any) -> Bytes:
        """The bytes of a document.

        Raises:
            DataError: `pack` returned something else.
        """
        given = self._pack(data)
        packed: Bytes = given if type(given) is bytes else as_bytes(given, self._what, self._dtype)
        if self._itemsize > 1 and len(packed) % self._itemsize:
            raise DataError(
                f"{self._what} {len(packed)} bytes; expected a multiple of {self._itemsize}, the "
                f"size of {self._dtype}"
            )
        return packed


def as_bytes(packed: Any, what: str, dtype: np.dtype[Any]) -> Bytes:
    """Any buffer of bytes, or of `dtype`, as bytes in a row; shares its memory.

    Raises:
        DataError: not such a buffer; the message begins with `what`.
    """
    if isinstance(packed, str):
        raise DataError(f'{what} str; expected bytes: encode it, for example with .encode("utf-8")')
    if is_masked(packed):
        raise DataError(f"{what} a masked array; give values to all with .filled(value)")
    if isinstance(packed, np.ndarray):
        if packed.ndim != 1 or packed.dtype not in (np.uint8, dtype):
            raise DataError(
                f"{what} an array of shape {packed.shape} and dtype {packed.dtype}; expected "
                f"bytes, or a 1-d array of {dtype}"
            )
        if type(packed) is not np.ndarray:
            packed = packed.view(np.ndarray)
        if has_padding(packed.dtype) or not packed.flags.c_contiguous:
            packed = zero_padded(packed)
        values: NDArray[np.uint8] = packed.view(np.uint8)
        return values.data
    try:
        view = memoryview(packed)
    except TypeError:
        raise DataError(f"{what} {type(packed).__name__}; expected bytes") from None
    if view.ndim != 1 or view.itemsize != 1 or not view.contiguous:
        raise DataError(
            f"{what} a buffer of {view.ndim} dimensions and items of {view.itemsize} bytes, "
            f"{'contiguous' if view.contiguous else 'not contiguous'}; expected bytes in a row"
        )
    return view.cast("B")


class Spans(NamedTuple):
    """Elements with their spans, ready to be written."""

    elements: NDArray[Any]
    lengths: list[int]
    payloads: list[Bytes]


class SpanPacker:
    """Elements and spans, in either of the two forms that `pack` may have."""

    def __init__(self, storage_format: Any, element_type: np.dtype[Any]) -> None:
        self._format = storage_format
        self._name = type(storage_format).__name__
        self._elements = ElementPacker(storage_format, element_type)
        self._what = f"{self._name}.pack gave a payload of type"

    def pack(self, data: Any) -> Spans:
        """Elements and spans of `data`.

        Raises:
            DataError: `pack` returned, or yielded, something else.
        """
        packed = self._format.pack(data)
        if hasattr(packed, "send") and hasattr(packed, "__next__"):
            stream, lengths, payloads = runs_of_pairs(packed, self._format, data)
        elif isinstance(packed, tuple) and len(packed) == 3:
            stream, lengths, payloads = packed
        else:
            shown_length = f" of {len(packed)} items" if isinstance(packed, tuple) else ""
            raise DataError(
                f"{self._name}.pack returned {type(packed).__name__}{shown_length}; expected "
                "(elements, run_lengths, payloads), or a generator of (key, payload) pairs"
            )
        elements = self._elements.checked(stream)
        runs = self._lengths(lengths, elements.size)
        return Spans(elements, runs, self._payloads(payloads, len(runs)))

    def _lengths(self, lengths: Any, elements: int) -> list[int]:
        # A copy: what is checked is what is written, whatever the payloads' iterator does.
        runs: list[int] = list(lengths) if type(lengths) is list else []
        if set(map(type, runs)) != {int}:
            runs = self._integers(lengths)
        total = sum(runs)
        if total == elements and (not runs or min(runs) >= 0):
            return runs
        for k, length in enumerate(runs):
            if not 0 <= length <= elements:
                raise DataError(
                    f"{self._name}.pack: run_lengths[{k}] is {shown(length)}; expected 0 to "
                    f"{elements}, the number of elements"
                )
        raise DataError(
            f"{self._name}.pack: the run lengths add up to {total}; expected {elements}, the "
            "number of elements: every element belongs to one span"
        )

    def _integers(self, lengths: Any) -> list[int]:
        try:
            given = list(lengths) if hasattr(lengths, "__next__") else lengths
            if isinstance(given, list) and any(isinstance(n, bool) for n in given):
                raise TypeError("run_lengths holds a bool; expected integers")
            runs = index_array("run_lengths", given)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{self._name}.pack: {error}") from error
        if runs.ndim != 1:
            raise DataError(
                f"{self._name}.pack: run_lengths has {runs.ndim} dimensions; expected 1"
            )
        numbers: list[int] = runs.tolist()
        return numbers

    def _payloads(self, payloads: Any, runs: int) -> list[Bytes]:
        if isinstance(payloads, NOT_LISTS) or not hasattr(payloads, "__iter__"):
            raise DataError(
                f"{self._name}.pack: the payloads are {type(payloads).__name__}; expected a list "
                "with a payload for each run"
            )
        buffers: list[Bytes] = [
            payload if type(payload) is bytes else bytes(as_bytes(payload, self._what, _BYTE))
            for payload in payloads
        ]
        if len(buffers) != runs:
            raise DataError(
                f"{self._name}.pack: {len(buffers)} payloads for {runs} runs; expected one for each"
            )
        return buffers
