"""Whether what came of a vector is what must come of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hostile.good_datasets import CANARY, expected_contents
from hostile.operations import CHANGING, READING
from hostile.vectors import Vector

MOST_SECONDS = 1.0
MOST_MIB = 128.0
LONGEST_MESSAGE = 2000
READS = ("read", "read with maps", "read with seek")
NEVER_CHANGED = re.compile(r"guideloom\.json|commits(/[^.]*\.json)?|manifests(/[0-9]*\.json)?")
MADE = re.compile(
    r"data/0000/[0-9]{7}-[0-9]{4}-[0-9a-f]{16}\.[a-z.]+|commits/[0-9]{7}-[0-9]{4}\.json"
    r"|manifests/[0-9]{8}\.json|manifest\.json|owners/[0-9]{7}\.json|owners|manifests|data(/0000)?"
    r"|commits|jobs(/run\.json)?"
)


def problems(vector: Vector, found: dict[str, Any]) -> Iterator[str]:
    """Everything that must not be."""
    outcomes = {outcome["operation"]: outcome for outcome in found["outcomes"]}
    assert list(outcomes) == [*READING, *CHANGING]
    for outcome in outcomes.values():
        yield from (f"{outcome['operation']}: {problem}" for problem in _behaviour(outcome))
    yield from (f"outside was changed: {name!r}" for name in found["outside"])
    if "links" not in vector.facts:
        yield from (f"outside was made: {name!r}" for name in found["made_outside"])
    yield from _changes(vector, found)
    yield from _content(vector, outcomes)
    yield from _said(vector, outcomes)


def _behaviour(outcome: dict[str, Any]) -> Iterator[str]:
    """What must hold for every operation on every dataset."""
    error = outcome["error"]
    if not outcome["own"]:
        yield f"{error[:300]!r} is no error of the library"
    if outcome["cpu_seconds"] > MOST_SECONDS:
        yield f"{outcome['cpu_seconds']:.2f} s"
    if outcome["mib"] > MOST_MIB:
        yield f"{outcome['mib']:.0f} MiB"
    if len(error) > LONGEST_MESSAGE:
        yield f"a message of {len(error)} characters: {error[:80]!r}"
    text = outcome["result"] + error
    if not all(letter.isprintable() or letter == "\n" for letter in text):
        yield f"a message with control characters: {text[:300]!r}"
    yield from (f"outside: {escape}" for escape in outcome["escapes"])


def _changes(vector: Vector, found: dict[str, Any]) -> Iterator[str]:
    """Published files stay as they are, and so does data, unless a record names other files."""
    freed = {"reading", "other"} & set(vector.facts)
    for name in set(found["changed"]) - {vector.facts.get("file")}:
        if NEVER_CHANGED.fullmatch(name) or (name.startswith("data") and not freed):
            yield f"{name} was changed"
    for name in found["made"]:
        if not MADE.fullmatch(name):
            yield f"{name!r} was made"


def _content(vector: Vector, outcomes: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The right data, or what the vector says."""
    facts = vector.facts
    right = expected_contents(vector.base).hex()
    opened = facts.get("refuses", "")
    if opened not in outcomes["open"]["error"] or bool(opened) != bool(outcomes["open"]["error"]):
        yield f"open: {outcomes['open']['error'][:300]!r} instead of {opened!r}"
    text = opened or facts.get("reading", "")
    shown = [outcomes[name] for name in READS]
    for outcome in [*shown, outcomes["read version 1"]]:
        if CANARY.hex() in outcome["result"] and "canary" not in facts:
            yield f"{outcome['operation']}: data from outside"
    for outcome in shown:
        if bool(text) != bool(outcome["error"]) or text not in outcome["error"]:
            yield f"{outcome['operation']}: {outcome['error'][:300]!r} instead of {text!r}"
        elif not text and (outcome["result"] == right) == bool(facts.get("other")):
            yield f"{outcome['operation']}: {'right' if facts.get('other') else 'wrong'} data"


def _said(vector: Vector, outcomes: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What the other operations must say."""
    facts = vector.facts
    expected = facts.get("verify", facts.get("refuses", facts.get("reading", "")))
    outcome = outcomes["verify everything"]
    found = outcome["result"] + outcome["error"]
    if expected not in found or bool(expected) != bool(found):
        yield f"verify: {found[:300]!r} instead of {expected!r}"
    structure = outcomes["verify structure"]
    if "refuses" in facts and expected and not structure["result"] + structure["error"]:
        yield "verify structure: clean, though it is not opened"
    for key, operation in (
        ("opens", "guideloom.open"),
        ("writes", "write"),
        ("pinned", "read version 1"),
        ("consolidates", "consolidate"),
        ("cleans", "list what is left"),
        ("cleans", "remove what is left"),
        ("finishes", "finish a job"),
    ):
        error = outcomes[operation]["error"]
        if key in facts and (facts[key] not in error or not error):
            yield f"{operation}: {error[:300]!r} instead of {facts[key]!r}"


def describe(found: dict[str, Any]) -> str:
    """The outcomes in short, for the messages of failing tests."""
    short = {
        outcome["operation"]: (outcome["error"] or outcome["result"])[:160]
        for outcome in found["outcomes"]
    }
    return json.dumps(short, indent=1)
