"""The state of a loader, which may come from anywhere: a checkpoint is a file of somebody."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from guideloom_format import StateMismatchError
from guideloom_torch._state import make_state, pinned_version, read_state
from targets.base import Target, attempt
from targets.mutation import mutate_json

SAMPLES = 1000
ORDERS: list[dict[str, int | str | bool]] = [
    {
        "dataset": "5be1" * 16,
        "sequence_length": 2049,
        "stride": 2048,
        "samples": SAMPLES,
        "algorithm": "feistel-1",
        "shuffle": True,
        "shuffle_seed": 2**80,
    },
    {
        "dataset": "00ff" * 16,
        "samples": SAMPLES,
        "algorithm": "feistel-1",
        "shuffle": False,
        "shuffle_seed": 0,
    },
]


def feed(data: bytes) -> None:
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        return
    for order in ORDERS:
        version = pinned_version(state, order)
        assert version is None or 0 <= version < 10**8
        at = attempt(partial(read_state, state, order, SAMPLES), StateMismatchError, names="state")
        assert (at is not None) == fits(state, order), state
        if at is not None:
            assert version is None
            again = make_state(*at, order, state.get("manifest_version"))
            assert again.items() >= {**state, "version": 2}.items()


def fits(state: Any, order: dict[str, int | str | bool]) -> bool:
    """Whether it is a state of this order, in plain words."""
    if not isinstance(state, dict):
        return False
    numbers: list[Any] = [state.get(name) for name in ("version", "epoch", "position")]
    if not all(type(number) is int for number in numbers):
        return False
    version, epoch, position = map(int, numbers)
    others = {"version", "epoch", "position"} | ({"manifest_version"} if version == 2 else set())
    same = set(state) == others | set(order) and all(
        type(state[name]) is type(value) and state[name] == value for name, value in order.items()
    )
    pinned = state.get("manifest_version")
    pins = pinned is None or (type(pinned) is int and 0 <= pinned < 10**8)
    return same and pins and version in (1, 2) and 0 <= epoch < 2**63 and 0 <= position <= SAMPLES


def seeds() -> list[bytes]:
    states = [
        make_state(epoch, position, order, version)
        for order in ORDERS
        for epoch, position, version in ((0, 0, None), (2**63 - 1, SAMPLES, 3))
    ]
    old = [{**state, "version": 1} for state in states]
    for state in old:
        del state["manifest_version"]
    grown = [{**state, "dataset": "1234" * 16} for state in states]
    return [json.dumps(state).encode() for state in (*states, *old, *grown)]


TARGET = Target("loader_state", feed, mutate_json, seeds)
