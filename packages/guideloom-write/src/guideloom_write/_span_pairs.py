"""The generator form of `pack`: a (key, payload or None) pair for each element, made into runs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from guideloom_format import DataError
from guideloom_format._integers import as_index, shown


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
    lengths: list[int] = []
    payloads: list[Any] = []
    seen: set[Hashable] = set()
    current: Any = None
    element = 0
    while True:
        try:
            pair = next(pairs)
        except StopIteration as end:
            if element != size:
                raise DataError(
                    f"{name}.pack yielded {element} pairs; expected {size}, which size() said: "
                    f"element {element} has none"
                ) from None
            stream = end.value
            if isinstance(stream, np.ndarray) and stream.ndim == 1 and stream.size != size:
                raise DataError(
                    f"{name}.pack yielded {size} pairs and returned an array of {stream.size} "
                    "elements; expected one pair for each element"
                ) from None
            return stream, lengths, payloads
        if element >= size:
            pairs.close()
            raise DataError(
                f"{name}.pack yielded a pair for element {element}; expected {size} pairs, which "
                "size() said"
            )
        key, payload = _pair(pair, name, element)
        if lengths and key == current:
            if payload is not None:
                raise DataError(
                    f"{name}.pack: element {element} goes on with the run of key {shown(key)} and "
                    "has a payload; only the first element of a run has one, the others None"
                )
            lengths[-1] += 1
        else:
            _begin_run(key, payload, seen, name, element)
            current = key
            lengths.append(1)
            payloads.append(payload)
        element += 1


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


def _begin_run(key: Any, payload: Any, seen: set[Hashable], name: str, element: int) -> None:
    if key in seen:
        raise DataError(
            f"{name}.pack: element {element} has the key {shown(key)}, whose run ended before; a "
            "span is one run, use another key"
        )
    if payload is None:
        raise DataError(
            f"{name}.pack: element {element} begins the run of key {shown(key)} without a payload; "
            'the first element of a run has it, b"" if there is nothing to say'
        )
    seen.add(key)
