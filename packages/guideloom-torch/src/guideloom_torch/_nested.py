"""Values inside mappings, lists, tuples and dataclasses, changed one by one."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import cached_property
from typing import Any

import numpy as np

Where = tuple[tuple[str, Any], ...]
Change = Callable[[Any, Where], Any]

INSIDE = object()
_OPEN = object()
_SIMPLE = frozenset((int, float, complex, bool, str, bytes, type(None), np.ndarray))


def rebuilt(value: Any, change: Change) -> Any:
    """A value with its leaves changed; what has no changed leaf is the same object as before.

    An object that occurs twice is changed once, and its result occurs twice.

    Args:
        value: is not changed itself.
        change: is called with each value that is no number, string or array, and with where it
            is; returns `INSIDE` to have the values inside it changed, or left if there are none.

    Raises:
        ValueError: the value contains itself.
    """
    return _rebuilt(value, (), change, {})


def moves_itself(value: Any) -> bool:
    """Whether an object's own ``to`` or ``pin_memory`` move it.

    An object with both knows best. With one of them it does if its parts are not known here:
    tokenizers, for example, return mappings with a ``to``, and no ``pin_memory``.
    """
    kind = type(value)
    if issubclass(kind, np.ndarray):
        return False  # a quantity's `to` is one of units
    moves = callable(getattr(kind, "to", None))
    pins = callable(getattr(kind, "pin_memory", None))
    return (moves and pins) or ((moves or pins) and not _has_parts(value))


def name_of(where: Where) -> str:
    """Such as ``batch['tokens'][0].mask``."""
    return "batch" + "".join(form.format(key) for form, key in where)


def _rebuilt(value: Any, where: Where, change: Change, done: dict[int, tuple[Any, Any]]) -> Any:
    if type(value) in _SIMPLE:
        return value
    before = done.get(id(value))
    if before is not None:
        if before[1] is _OPEN:
            raise ValueError(f"the batch contains itself: {name_of(where)} is what it lies in")
        return before[1]
    done[id(value)] = (value, _OPEN)  # the value is held, as its id must not become another's
    new = change(value, where)
    if new is INSIDE:
        new = _with_parts(value, where, change, done) if _has_parts(value) else value
    done[id(value)] = (value, new)
    return new


def _has_parts(value: Any) -> bool:
    return isinstance(value, (list, tuple, Mapping)) or dataclasses.is_dataclass(type(value))


def _with_parts(value: Any, where: Where, change: Change, done: dict[int, tuple[Any, Any]]) -> Any:
    parts: Iterable[tuple[Any, Any]]
    build: Callable[[Any, dict[Any, Any]], Any]
    if isinstance(value, Mapping):
        parts, form, build = value.items(), "[{!r}]", _mapping
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        parts, form, build = zip(value._fields, value, strict=True), ".{}", _named_tuple
    elif isinstance(value, (list, tuple)):
        parts, form, build = enumerate(value), "[{}]", _sequence
    else:
        parts, form, build = _fields(value), ".{}", _dataclass
    changed: dict[Any, Any] = {}
    for key, part in parts:
        new = _rebuilt(part, (*where, (form, key)), change, done)
        if new is not part:
            changed[key] = new
    return build(value, changed) if changed else value


def _mapping(value: Mapping[Any, Any], changed: dict[Any, Any]) -> Any:
    """Of the same type if it can be; a dict if not."""
    if type(value) is dict:
        return {**value, **changed}
    before = dict(value.items())
    try:
        if not isinstance(value, MutableMapping):
            return type(value)({**before, **changed})  # type: ignore[call-arg]
        new = copy.copy(value)
        new.update(changed)
    except Exception:  # noqa: BLE001  # whatever a mapping of someone else's raises here
        return {**before, **changed}
    if all(value[key] is before[key] for key in changed):
        return new
    value.update({key: before[key] for key in changed})  # the copy has the same insides
    return {**before, **changed}


def _named_tuple(value: Any, changed: dict[str, Any]) -> Any:
    return value._replace(**changed)


def _sequence(value: Any, changed: dict[int, Any]) -> Any:
    """Of the same type if it can be; a list or tuple if not."""
    parts = [changed.get(k, part) for k, part in enumerate(value)]
    if type(value) is list:
        return parts
    try:
        if not isinstance(value, list):
            return type(value)(parts)
        new = copy.copy(value)
        new[:] = parts
    except Exception:  # noqa: BLE001  # whatever a sequence of someone else's raises here
        return parts if isinstance(value, list) else tuple(parts)
    return new


def _fields(value: Any) -> list[tuple[str, Any]]:
    """The fields that are set: one with ``init=False`` need not be."""
    names = (field.name for field in dataclasses.fields(value))
    return [(name, getattr(value, name)) for name in names if hasattr(value, name)]


def _dataclass(value: Any, changed: dict[str, Any]) -> Any:
    """A copy with other fields.

    `dataclasses.replace` would call ``__post_init__``, which has been done to these values, and it
    refuses fields with ``init=False``.
    """
    new = copy.copy(value)
    for name, part in changed.items():
        object.__setattr__(new, name, part)  # also if it is frozen
    own = getattr(new, "__dict__", {})
    for name in [name for name in own if _is_cached(type(value), name)]:
        del own[name]  # computed from the fields before
    return new


def _is_cached(kind: type, name: str) -> bool:
    return any(isinstance(base.__dict__.get(name), cached_property) for base in kind.__mro__)
