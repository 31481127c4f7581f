"""The error family: one tree, drawn in the module; every error crosses processes unchanged."""

from __future__ import annotations

import builtins
import copy
import inspect
import multiprocessing
import pickle
import re

import pytest

import guideloom_format
from format.failing import fail
from guideloom_format import GuideLoomError, _errors

CLASSES: dict[str, type[GuideLoomError]] = {
    name: value
    for name, value in vars(_errors).items()
    if inspect.isclass(value) and issubclass(value, GuideLoomError)
}
LINE = re.compile(r"    (?P<lead>[ │├└─]*)(?P<name>[A-Z]\w*Error)\b *(\((?P<base>\w+)\))?")
TEXT = "data/0000/x.elements: offset 65536: found 1, expected 2; do this. é\n"


def drawn_tree() -> dict[str, tuple[str | None, str | None]]:
    """From the picture in the module's docstring: class -> (parent, built-in)."""
    tree: dict[str, tuple[str | None, str | None]] = {}
    above: list[tuple[int, str]] = []  # column and name of the classes on the way down
    for line in (_errors.__doc__ or "").splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        column = len(match["lead"])
        while above and above[-1][0] >= column:
            above.pop()
        tree[match["name"]] = (above[-1][1] if above else None, match["base"])
        above.append((column, match["name"]))
    return tree


def test_the_picture_has_every_class_and_no_other() -> None:
    tree = drawn_tree()
    assert {name for name, value in vars(_errors).items() if inspect.isclass(value)} == set(CLASSES)
    assert set(tree) == set(CLASSES)
    assert len(tree) >= 14


@pytest.mark.parametrize("name", CLASSES)
def test_the_picture_is_the_inheritance(name: str) -> None:
    parent, builtin = drawn_tree()[name]
    bases = [base.__name__ for base in CLASSES[name].__bases__]
    if parent is None:
        assert (name, bases, builtin) == ("GuideLoomError", ["Exception"], None)
    else:
        assert bases == [parent] + ([builtin] if builtin else [])
    if builtin:
        assert issubclass(CLASSES[name], getattr(builtins, builtin))


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_can_be_caught_as_a_builtin(name: str) -> None:
    """But for the two roots, which gather errors of several kinds."""
    caught_as = [
        base for base in CLASSES[name].__mro__
        if base.__module__ == "builtins" and base not in (Exception, BaseException, object)
    ]  # fmt: skip
    assert bool(caught_as) == (name not in ("GuideLoomError", "DatasetError"))
    assert issubclass(CLASSES[name], GuideLoomError)


def assert_same_error(one: BaseException, other: BaseException) -> None:
    assert type(one) is type(other)
    assert str(one) == str(other) == TEXT
    assert one.args == other.args == (TEXT,)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_pickling(name: str, protocol: int) -> None:
    error = CLASSES[name](TEXT)
    assert_same_error(pickle.loads(pickle.dumps(error, protocol)), error)


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_rebuilt_from_one_string(name: str) -> None:
    """As libraries do that carry an exception from a worker as its type and text."""
    error = CLASSES[name](TEXT)
    assert_same_error(type(error)(str(error)), error)
    assert_same_error(type(error)(*error.args), error)
    assert_same_error(copy.copy(error), error)
    assert_same_error(copy.deepcopy(error), error)


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_keeps_its_cause_and_notes(name: str) -> None:
    cause = ValueError("the cause")
    with pytest.raises(GuideLoomError, match="offset 65536") as caught:
        raise CLASSES[name](TEXT) from cause
    caught.value.add_note("a note")
    assert caught.value.__cause__ is cause
    assert pickle.loads(pickle.dumps(caught.value)).__notes__ == ["a note"]


def test_every_error_comes_out_of_another_process() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pending = {name: pool.apply_async(fail, (kind, TEXT)) for name, kind in CLASSES.items()}
        for name, result in pending.items():
            with pytest.raises(CLASSES[name]) as caught:
                result.get(timeout=60)
            assert_same_error(caught.value, CLASSES[name](TEXT))


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_public_and_described(name: str) -> None:
    assert getattr(guideloom_format, name) is CLASSES[name]
    assert name in guideloom_format.__all__
    assert CLASSES[name].__doc__
