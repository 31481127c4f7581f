"""The generator form of `pack`: a (key, payload or None) pair for each element, made into runs."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from typing import Any

import numpy as np

from guideloom_format import DataError
from guideloom_format._integers import as_index, shown
from guideloom_format._stream_spans import owned


def runs_of_pairs(pairs: Any, storage_format: Any, data: Any) -> tuple[Any, list[int], list[Any]]:
    """Elements, run lengths and payloads.

    ::

        (7, b"x") (7, None) (9, b"y")   ->   lengths 2 1, payloads x y

    Args:
        pairs: the generator; its return value are the elements.
        storage_format: whose `size` says how many pairs there are.
        data: what is packed.

    Raises:
        DataError: another number of pairs, a key that comes back after another, a run that begins
            without a payload or has a second one. The message names the element.
    """
    name = type(storage_format).__name__
    size = _size(storage_format, data, name)
    runs = _Runs(name)
    try:
        while True:
            try:
                pair = next(pairs)
            except StopIteration as end:
                _check_end(name, runs.elements, size, end.value)
                return end.value, runs.lengths, runs.payloads
            if runs.elements >= size:
                raise DataError(
                    f"{name}.pack yielded a pair for element {runs.elements}; expected {size} "
                    "pairs, which size() said"
                )
            runs.add(*_pair(pair, name, runs.elements))
    except DataError:
        with contextlib.suppress(Exception):  # what the generator says of its end is no news
            pairs.close()
        raise


class _Runs:
    """The runs of the pairs so far."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen: set[Hashable] = set()
        self._key: Hashable = None
        self.elements = 0
        self.lengths: list[int] = []
        self.payloads: list[Any] = []

    def add(self, key: Hashable, payload: Any) -> None:
        """Take in the pair of the next element."""
        if self.lengths and key == self._key:
            if payload is not None:
                raise DataError(
                    f"{self._name}.pack: element {self.elements} goes on with the run of key "
                    f"{shown(key)} and has a payload; only the first element of a run has one, the "
                    "others None"
                )
            self.lengths[-1] += 1
        else:
            self._begin(key, payload)
        self.elements += 1

    def _begin(self, key: Hashable, payload: Any) -> None:
        where = f"{self._name}.pack: element {self.elements}"
        if key in self._seen:
            raise DataError(
                f"{where} has the key {shown(key)}, whose run ended before; a span is one run, use "
                "another key"
            )
        if payload is None:
            raise DataError(
                f"{where} begins the run of key {shown(key)} without a payload; the first element "
                'of a run has it, b"" if there is nothing to say'
            )
        self._seen.add(key)
        self._key = key
        self.lengths.append(1)
        self.payloads.append(owned(payload))


def _check_end(name: str, pairs: int, size: int, stream: Any) -> None:
    if pairs != size:
        raise DataError(
            f"{name}.pack yielded {pairs} pairs; expected {size}, which size() said: element "
            f"{pairs} has none"
        )
    if isinstance(stream, np.ndarray) and stream.ndim == 1 and stream.size != size:
        raise DataError(
            f"{name}.pack yielded {size} pairs and returned an array of {stream.size} elements; "
            "expected one pair for each element"
        )


def _size(storage_format: Any, data: Any, name: str) -> int:
    if not callable(getattr(storage_format, "size", None)):
        raise DataError(
            f"{name}.pack is a generator and {name} has no method size(data), which says how many "
            "elements it will yield"
        )
    try:
        return as_index(f"{name}.size(data)", storage_format.size(data), 0, 1 << 62)
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error


def _pair(pair: Any, name: str, element: int) -> tuple[Any, Any]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise DataError(
            f"{name}.pack yielded {shown(pair)} for element {element}; expected a pair (key, "
            "payload or None)"
        )
    try:
        hash(pair[0])
    except TypeError as error:
        raise DataError(f"{name}.pack: the key of element {element}: {error}") from error
    return pair
