"""The state of a loader: where in the global order training stands, and in which order.

::

    {"version": 2, "epoch": 2, "position": 81920,            where: samples delivered in the epoch,
                                                             over all ranks
     "algorithm": "feistel-1", "shuffle": True,              which order
     "shuffle_seed": 17, "samples": 1000000,
     "dataset": "5be1…", "sequence_length": 2049, …          of what: the reader's identity
     "manifest_version": 3}                                  where to find that when there is more

World size, batch size, workers and prefetching are not part of it: they may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from guideloom_format import StateMismatchError
from guideloom_format._integers import shown
from guideloom_format._manifest import MAX_MANIFEST_VERSION
from guideloom_format._plan import MAX_EPOCH

STATE_VERSION = 2  # version 1 had no manifest_version
ALGORITHM = "feistel-1"
SHOWN_FIELDS = 12
_HINTS = {
    "dataset": "the state belongs to other data, or the dataset was written anew, or it has grown "
    "and no manifest version has what it was (consolidate before training, so that states pin a "
    "version). Open the data that the state was saved with, or start without the state",
    "shuffle_seed": "build the loader with the seed of the state",
    "shuffle": "build the loader with the same value of shuffle",
    "sequence_length": "build the loader with the same sequence_length",
    "stride": "build the loader with the same stride",
}


def make_state(
    epoch: int,
    position: int,
    order: Mapping[str, int | str | bool],
    manifest_version: int | None,
) -> dict[str, int | str | bool | None]:
    """The state dict; plain integers and strings, so that JSON and any checkpoint keep it."""
    at = {"version": STATE_VERSION, "epoch": epoch, "position": position}
    return {**at, **order, "manifest_version": manifest_version}


def pinned_version(state: Any, order: Mapping[str, int | str | bool]) -> int | None:
    """The manifest version that a state needs, if it is of other data than this order."""
    try:
        fields, _ = fields_of(state)
    except StateMismatchError:
        return None  # `read_state` says so
    dataset, version = fields.get("dataset"), fields.get("manifest_version")
    if type(dataset) is not str or dataset == order["dataset"]:
        return None
    return version if _is_manifest_version(version) else None


def read_state(
    state: Mapping[str, Any], order: Mapping[str, int | str | bool], samples: int
) -> tuple[int, int]:
    """(epoch, position) of a state that belongs to this order.

    Raises:
        StateMismatchError: it does not; the message names the field and both values.
    """
    fields, others = fields_of(state)
    expected = {"version", "epoch", "position", "manifest_version", *order}
    version = fields.get("version", STATE_VERSION)
    if type(version) is not int or not 1 <= version <= STATE_VERSION:
        raise StateMismatchError(
            f"the loader state has version {shown(version)}; this release of guideloom-torch "
            f"reads versions 1 to {STATE_VERSION}. Install the release that wrote it, or a newer "
            "one"
        )
    if version == 1:
        expected.discard("manifest_version")
    missing, unknown = sorted(expected - fields.keys()), sorted(fields.keys() - expected) + others
    if missing or unknown:
        if len(unknown) > SHOWN_FIELDS:
            unknown[SHOWN_FIELDS:] = [f"… {len(unknown) - SHOWN_FIELDS} more"]
        raise StateMismatchError(
            f"the loader state lacks the fields {missing} and has the unknown fields {unknown}; "
            "expected the mapping that state_dict() of a loader over this kind of data returned"
        )
    for name, value in order.items():
        found = fields[name]
        if type(found) is not type(value) or found != value:
            hint = _HINTS.get(name, "the state belongs to another order of samples")
            raise StateMismatchError(
                f"the loader state has {name} {shown(found)}, this loader has {shown(value)}: "
                f"{hint}"
            )
    for name, high in (("epoch", MAX_EPOCH), ("position", samples)):
        value = fields[name]
        if type(value) is not int or not 0 <= value <= high:
            raise StateMismatchError(
                f"the loader state has {name} {shown(value)}; expected 0 to {high}"
            )
    pinned = fields.get("manifest_version")
    if pinned is not None and not _is_manifest_version(pinned):
        raise StateMismatchError(
            f"the loader state has manifest_version {shown(pinned)}; expected None or 0 to "
            f"{MAX_MANIFEST_VERSION}"
        )
    return fields["epoch"], fields["position"]


def fields_of(state: Any) -> tuple[dict[str, Any], list[str]]:
    """The fields that have a plain name, and the other names in words.

    A state may come from anywhere: of a value only its type is looked at before it is a plain one.
    """
    if not isinstance(state, Mapping):
        raise StateMismatchError(
            f"the loader state is a {type(state).__name__}; expected the mapping that "
            "state_dict() returned"
        )
    try:
        items = [(name, state[name]) for name in state]
    except Exception as error:
        raise StateMismatchError(
            f"the loader state is a {type(state).__name__} that cannot be read "
            f"({type(error).__name__}); expected the mapping that state_dict() returned"
        ) from error
    fields = {name: value for name, value in items if type(name) is str}
    return fields, [shown(name) for name, _ in items if type(name) is not str]


def _is_manifest_version(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_MANIFEST_VERSION
