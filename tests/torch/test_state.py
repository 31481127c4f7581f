"""A state is a small plain value; one of something else is refused, and nothing changes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from guideloom import StatefulDataLoader, StateMismatchError, StreamNumpyFormat, StreamStorage

from .loader_cases import TOKENS, deliver, expected_run, ids_of, make_loader, write_stream

SAMPLES = 11
State = dict[str, Any]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stream(tmp_path_factory.mktemp("state") / "stream", SAMPLES)


@pytest.fixture(scope="module")
def loader(directory: Path) -> Iterator[StatefulDataLoader]:
    """In the middle of epoch 1."""
    with make_loader(directory, seed=17, local_batch_size=2) as loader:
        loader.set_epoch(1)
        next(iter(loader))
        yield loader


def test_the_fields_of_a_state(loader: StatefulDataLoader) -> None:
    state = loader.state_dict()
    fingerprint = state["dataset"]
    assert isinstance(fingerprint, str)
    assert len(bytes.fromhex(fingerprint)) == 32
    assert state == {
        "version": 2,
        "epoch": 1,
        "position": 2,
        "algorithm": "feistel-1",
        "shuffle": True,
        "shuffle_seed": 17,
        "samples": SAMPLES,
        "dataset": fingerprint,
        "sequence_length": 3,
        "stride": 3,
        "manifest_version": None,
    }


@pytest.mark.parametrize("options", [{}, {"seed": np.int64(3)}, {"seed": 2**500}])
def test_a_state_is_small_and_plain_and_survives_json(
    directory: Path, options: dict[str, Any]
) -> None:
    loader = make_loader(directory, local_batch_size=np.int32(2), **options)
    loader.set_epoch(2**63 - 2)
    next(iter(loader))
    state = loader.state_dict()
    assert {type(value) for value in state.values()} <= {int, str, bool, type(None)}
    text = json.dumps(state)
    assert len(text) <= 4096
    resumed = make_loader(directory, local_batch_size=2, **options)
    resumed.load_state_dict(json.loads(text))
    assert resumed.state_dict() == state
    assert [ids_of(batch) for batch in resumed] == [ids_of(batch) for batch in loader]


def test_a_state_says_nothing_of_workers_batches_or_ranks(directory: Path) -> None:
    plain = make_loader(directory, seed=1).state_dict()
    other = make_loader(
        directory,
        seed=1,
        local_batch_size=3,
        rank=1,
        world_size=4,
        num_workers=3,
        prefetch=2,
        drop_last=False,
    )
    assert other.state_dict() == plain


def test_a_copied_dataset_takes_the_state_and_one_written_anew_does_not(tmp_path: Path) -> None:
    """Content and identity count, the place does not."""
    first = write_stream(tmp_path / "first", SAMPLES)
    state = make_loader(first, seed=1).state_dict()
    copy = first.rename(tmp_path / "moved")
    make_loader(copy, seed=1).load_state_dict(state)
    anew = make_loader(write_stream(tmp_path / "anew", SAMPLES), seed=1)
    text = "has dataset '[0-9a-f]{64}', this loader has '[0-9a-f]{64}': .* other data, or .* anew"
    with pytest.raises(StateMismatchError, match=text):
        anew.load_state_dict(state)


def test_a_dataset_that_has_grown_is_named(tmp_path: Path) -> None:
    """The order of a longer dataset is another one; the message says what happened."""
    directory = write_stream(tmp_path / "stream", SAMPLES)
    state = make_loader(directory, seed=1).state_dict()
    write_stream(directory, 4)
    with pytest.raises(
        StateMismatchError, match=r"has dataset .*, or it has grown and no manifest"
    ):
        make_loader(directory, seed=1).load_state_dict(state)


@pytest.mark.parametrize(
    "options, text",
    [
        (
            {"seed": 18},
            "the loader state has shuffle_seed 17, this loader has 18: build the loader with",
        ),
        (
            {"seed": None},
            "the loader state has shuffle True, this loader has False: build the loader with",
        ),
        (
            {"sequence_length": 2},
            "the loader state has sequence_length 3, this loader has 2: build the loader with",
        ),
        (
            {"stride": 2},
            "the loader state has stride 3, this loader has 2: build the loader with",
        ),
        (
            {"sequence_length": 4, "stride": 3},  # as many samples as before
            "the loader state has sequence_length 3, this loader has 4",
        ),
    ],
)
def test_another_order_is_refused_by_the_name_of_the_option(
    directory: Path, options: dict[str, Any], text: str
) -> None:
    options = {"seed": 17, "sequence_length": 3} | options
    state = make_loader(directory, seed=17).state_dict()
    other = make_loader(directory, **options)
    before = other.state_dict()
    with pytest.raises(StateMismatchError, match=f"^{text}"):
        other.load_state_dict(state)
    assert other.state_dict() == before


def _with(**fields: Any) -> Callable[[State], Any]:
    return lambda state: state | fields


def _without(*names: str) -> Callable[[State], Any]:
    return lambda state: {key: value for key, value in state.items() if key not in names}


@pytest.mark.parametrize(
    "damage, text",
    [
        (lambda _: None, "^the loader state is a NoneType; expected the mapping that state_dict"),
        (lambda state: list(state.items()), "^the loader state is a list; expected the mapping"),
        (json.dumps, "^the loader state is a str; expected the mapping"),
        (lambda _: {}, r"lacks the fields \['algorithm', .*'version'\] and has .* fields \[\]"),
        (_with(version=3), "has version 3; this release of guideloom-torch reads versions 1 to 2"),
        (_with(version="1"), "has version '1'; this release .* reads versions 1 to 2. Install the"),
        (_with(version=None), "has version None; this release"),
        (_with(version=True), "has version True; this release"),
        (_with(version=1.0), "has version 1.0; this release"),
        (_with(version=np.array([1, 2])), "has version array"),
        (_with(version=torch.tensor([1, 2])), "has version tensor"),
        (_with(epoch=np.array([1, 2])), "has epoch array"),
        (_without("version"), r"lacks the fields \['version'\] and has the unknown fields \[\]"),
        (_without("dataset", "epoch"), r"lacks the fields \['dataset', 'epoch'\]"),
        (_with(workers=3), r"lacks the fields \[\] and has the unknown fields \['workers'\]"),
        (lambda state: {**state, 5: 5}, r"has the unknown fields \['5'\]"),
        (_with(algorithm="feistel-2"), "has algorithm 'feistel-2', this loader has 'feistel-1'"),
        (_with(shuffle=1), "has shuffle 1, this loader has True"),
        (_with(shuffle_seed=17.0), "has shuffle_seed 17.0, this loader has 17"),
        (_with(shuffle_seed=True), "has shuffle_seed True, this loader has 17"),
        (_with(samples=12), "has samples 12, this loader has 11: .* another order of samples"),
        (_with(dataset=17), "has dataset 17, this loader has '"),
        (_with(position=12), "has position 12; expected 0 to 11"),
        (_with(position=-1), "has position -1; expected 0 to 11"),
        (_with(position=2.0), "has position 2.0; expected 0 to 11"),
        (_with(manifest_version="2"), "has manifest_version '2'; expected None or 0 to 9{8}$"),
        (_with(manifest_version=-1), "has manifest_version -1; expected None or 0 to 9{8}$"),
        (_with(manifest_version=True), "has manifest_version True; expected None or 0 to 9{8}$"),
        (
            _with(manifest_version=10**16),
            "has manifest_version 1(0){16}; expected None or 0 to 9{8}$",
        ),
        (_with(position=True), "has position True; expected 0 to 11"),
        (_with(position="2"), "has position '2'; expected 0 to 11"),
        (_with(position=2**80), "has position 1208925819614629174706176; expected 0 to 11"),
        (_with(position=np.int64(2)), r"has position (np.int64\()?2\)?; expected 0 to 11"),
        (_with(epoch=-1), "has epoch -1; expected 0 to 9223372036854775807"),
        (_with(epoch=2**63), "has epoch 9223372036854775808; expected 0 to 9223372036854775807"),
        (_with(epoch=None), "has epoch None; expected 0 to"),
        (_with(epoch=math.nan), "has epoch nan; expected 0 to"),
    ],
)
def test_what_is_no_state_is_refused_by_the_name_of_the_field(
    loader: StatefulDataLoader, damage: Callable[[State], Any], text: str
) -> None:
    before = loader.state_dict()
    with pytest.raises(StateMismatchError, match=text):
        loader.load_state_dict(damage(before))
    assert loader.state_dict() == before


def test_a_refused_load_leaves_the_iterator_valid(directory: Path) -> None:
    loader = make_loader(directory, num_workers=1, prefetch=2)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(StateMismatchError, match="position"):
        loader.load_state_dict(loader.state_dict() | {"position": -1})
    assert ids_of(next(iterator)) == [1]
    assert (loader.epoch, loader.position) == (0, 2)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-2, SAMPLES + 2)
    | st.floats()
    | st.text(max_size=70)
    | st.binary(max_size=8),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=5,
)
NAMES = (
    "version epoch position algorithm shuffle shuffle_seed samples dataset sequence_length stride"
)
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["set", "remove"]),
        st.sampled_from(NAMES.split()) | st.text(max_size=9),
        JSON_VALUES,
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=500, deadline=None)
@example([("set", "version", True)])
@example([("set", "version", 1.0)])
@example([("set", "position", SAMPLES)])
@given(MUTATIONS)
def test_a_mutated_state_is_refused_or_is_one_with_another_place(
    loader: StatefulDataLoader, mutations: list[tuple[str, str, Any]]
) -> None:
    """Only StateMismatchError comes out, and it changes nothing."""
    before = loader.state_dict()
    state: dict[str, Any] = dict(before)
    for action, name, value in mutations:
        if action == "set":
            state[name] = value
        else:
            state.pop(name, None)
    if _is_a_place(state, before):
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        loader.load_state_dict(before)
    else:
        with pytest.raises(StateMismatchError):
            loader.load_state_dict(state)
    assert loader.state_dict() == before


def _is_a_place(state: State, valid: State) -> bool:
    """Whether it is the valid state but for an allowed epoch and position."""
    if state.keys() != valid.keys():
        return False
    epoch, position = state["epoch"], state["position"]
    if type(epoch) is not int or type(position) is not int:
        return False
    same = valid | {"epoch": epoch, "position": position}
    return (
        all(type(state[name]) is type(same[name]) for name in same)
        and state == same
        and 0 <= epoch < 2**63
        and 0 <= position <= SAMPLES
    )


class Hostile:
    """Whatever is asked of it fails, but that it can be a key with the hash of another."""

    def __init__(self, like: str = "") -> None:
        self._hash = hash(like)

    def _fail(self, *_: object) -> NoReturn:
        raise RuntimeError("no")

    __repr__ = __str__ = __eq__ = __bool__ = __index__ = __len__ = _fail

    def __hash__(self) -> int:
        return self._hash


class HostileStr(str):
    """A text that cannot be compared or shown."""

    __slots__ = ()

    def _fail(self, *_: object) -> NoReturn:
        raise RuntimeError("no")

    __repr__ = __str__ = __eq__ = __ne__ = __lt__ = _fail
    __hash__ = str.__hash__


class HostileInt(int):
    """A number that cannot be compared or shown."""

    def _fail(self, *_: object) -> NoReturn:
        raise RuntimeError("no")

    __repr__ = __str__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _fail
    __hash__ = int.__hash__


class HostileMapping(Mapping[str, Any]):
    """A mapping of which one method fails."""

    def __init__(self, fields: State, method: str) -> None:
        self._fields = fields
        self._method = method

    def _do(self, method: str) -> State:
        if method == self._method:
            raise OSError("no")
        return self._fields

    def __getitem__(self, name: str) -> Any:
        return self._do("item")[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._do("iter"))

    def __len__(self) -> int:
        return len(self._do("len"))


HOSTILE: dict[str, Any] = {
    "array": np.array([1, 2]),
    "empty array": np.zeros(0),
    "array of texts": np.array(["a", "b"]),
    "tensor": torch.tensor([1, 2]),
    "object": Hostile(),
    "text": HostileStr("a"),
    "number": HostileInt(3),
    "list": [Hostile()],
    "very large": 10**5000,
    "list of very large": [10**5000],
    "class": Hostile,
}
FIELDS = [*NAMES.split(), "manifest_version"]


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("what", HOSTILE)
def test_a_value_is_refused_whatever_its_methods_do(
    loader: StatefulDataLoader, name: str, what: str
) -> None:
    before = loader.state_dict()
    with pytest.raises(StateMismatchError, match=f"has {name} "):
        loader.load_state_dict(before | {name: HOSTILE[what]})
    assert loader.state_dict() == before


@pytest.mark.parametrize("name", FIELDS)
def test_a_name_is_refused_whatever_its_methods_do(loader: StatefulDataLoader, name: str) -> None:
    """Beside the fields, and in place of one, with its hash."""
    before = loader.state_dict()
    rest = {field: value for field, value in before.items() if field != name}
    names: list[Any] = [Hostile(), Hostile(name), HostileStr(name), HostileInt(3), (Hostile(),)]
    for strange in [*names, 10**5000, None, b"epoch", np.str_(name)]:
        with pytest.raises(StateMismatchError, match=rf"lacks the fields \['{name}'\] and has the"):
            loader.load_state_dict({**rest, strange: before[name]})
    for strange in (Hostile(), HostileInt(3), (Hostile(),), 10**5000):
        state: dict[Any, Any] = {**before, strange: 1}
        with pytest.raises(StateMismatchError, match=r"lacks the fields \[\] and has the unknown"):
            loader.load_state_dict(state)
    assert loader.state_dict() == before


def test_many_unknown_names_make_no_long_message(loader: StatefulDataLoader) -> None:
    state = loader.state_dict() | {f"name{number:09}": number for number in range(100_000)}
    with pytest.raises(StateMismatchError, match=r"'name000000011', '… 99988 more'\]") as caught:
        loader.load_state_dict(state)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("method", ["item", "iter", "none", "len"])
def test_a_mapping_that_fails_is_refused(loader: StatefulDataLoader, method: str) -> None:
    before = loader.state_dict()
    state = HostileMapping(before, method)
    if method in ("none", "len"):
        loader.load_state_dict(state)
    else:
        text = r"is a HostileMapping that cannot be read \(OSError\); expected the mapping"
        with pytest.raises(StateMismatchError, match=text):
            loader.load_state_dict(state)
    assert loader.state_dict() == before


@settings(max_examples=200, deadline=None)
@given(JSON_VALUES)
def test_garbage_is_refused(loader: StatefulDataLoader, garbage: Any) -> None:
    before = loader.state_dict()
    with pytest.raises(StateMismatchError):
        loader.load_state_dict(garbage)
    assert loader.state_dict() == before


@settings(max_examples=100, deadline=None)
@given(epoch=st.integers(0, 2**63 - 1), position=st.integers(0, SAMPLES), batch=st.integers(1, 4))
def test_every_place_can_be_loaded_and_gives_the_rest(
    directory: Path, epoch: int, position: int, batch: int
) -> None:
    """Also one that is no border of this loader's batches."""
    assume(SAMPLES - position >= batch)
    with make_loader(directory, seed=17, local_batch_size=batch, drop_last=False) as loader:
        loader.load_state_dict(loader.state_dict() | {"epoch": epoch, "position": position})
        found = [sample for rows in loader for sample in ids_of(rows)]
        loader.load_state_dict(loader.state_dict() | {"epoch": epoch, "position": 0})
        whole = [sample for rows in loader for sample in ids_of(rows)]
    assert found == whole[position:]
    assert sorted(whole) == list(range(SAMPLES))


def test_a_state_at_the_very_end_goes_on_with_the_next_epoch(directory: Path) -> None:
    loader = make_loader(directory, seed=17)
    loader.load_state_dict(loader.state_dict() | {"position": SAMPLES})
    delivered = deliver(loader, until_epoch=2)
    assert delivered == expected_run(SAMPLES, 2, seed=17)[SAMPLES:]


def test_a_mapping_that_is_no_dict_is_taken(directory: Path) -> None:
    loader = make_loader(directory)
    loader.load_state_dict(MappingProxyType(loader.state_dict() | {"position": 3}))
    assert ids_of(next(iter(loader))) == [3]


def test_a_state_of_no_samples(tmp_path: Path) -> None:
    """An empty dataset has a state as well, and takes no position but 0."""
    storage = StreamStorage(tmp_path / "empty", StreamNumpyFormat(TOKENS))
    with storage.sync_writer():
        pass
    loader = make_loader(tmp_path / "empty")
    state = loader.state_dict()
    assert (state["samples"], state["position"]) == (0, 0)
    loader.load_state_dict(state)
    with pytest.raises(StateMismatchError, match="has position 1; expected 0 to 0"):
        loader.load_state_dict(state | {"position": 1})


@pytest.mark.parametrize("name", ["version", "epoch", "position", "samples", "shuffle_seed"])
def test_integers_that_python_does_not_print_are_refused_by_name(
    directory: Path, name: str
) -> None:
    loader = make_loader(directory)
    for value in (10**5000, -(10**5000)):
        with pytest.raises(StateMismatchError, match=f"{name} an integer of 16610 bits"):
            loader.load_state_dict({**loader.state_dict(), name: value})
