"""World size and batch size may change at every batch: the same global order goes on."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from guideloom import StatefulDataLoader

from .loader_cases import deal, deliver, global_order, ids_of, make_loader, write_stream

WORLDS = (1, 2, 3, 4, 8)
BATCHES = (1, 2, 3)


@pytest.mark.parametrize("samples", [24, 29])
@pytest.mark.parametrize("drop_last", [False, True])
def test_any_world_and_batch_to_any_other_after_every_batch(
    tmp_path: Path, samples: int, drop_last: bool
) -> None:
    """Over all ranks: each sample of the epoch exactly once, in the global order.

    With drop_last, what is left out is the end of that order, and shorter than a global batch; the
    next epoch is whole in any case.
    """
    directory = write_stream(tmp_path / "stream", samples)
    order, next_order = global_order(samples, 0, 7), global_order(samples, 1, 7)
    changes = 0
    for world_size, batch in product(WORLDS, BATCHES):
        states: list[tuple[int, str]] = []
        saver = make_loader(
            directory,
            rank=0,
            world_size=world_size,
            local_batch_size=batch,
            seed=7,
            drop_last=drop_last,
        )
        at = 0
        for at, _ in enumerate(saver, start=1):
            states.append((world_size * batch * at, json.dumps(saver.state_dict())))
        states = states[:-1]  # the last one stands at the next epoch
        for (delivered, state), new_world, new_batch in product(states, WORLDS, BATCHES):
            loaders = [
                make_loader(
                    directory,
                    rank=rank,
                    world_size=new_world,
                    local_batch_size=new_batch,
                    seed=7,
                    drop_last=drop_last,
                )
                for rank in range(new_world)
            ]
            for loader in loaders:
                loader.load_state_dict(json.loads(state))
            expected = deal(
                order[delivered:],
                world_size=new_world,
                local_batch_size=new_batch,
                drop_last=drop_last,
            )
            where = (world_size, batch, delivered, new_world, new_batch)
            # Every fifth change is followed through the next epoch.
            until_epoch = 2 if changes % 5 == 0 else 1
            whole = deal(
                next_order,
                world_size=new_world,
                local_batch_size=new_batch,
                drop_last=drop_last,
            )
            for rank, loader in enumerate(loaders):
                found = deliver(loader, until_epoch=until_epoch)
                rest = [ids for epoch, ids in found if epoch == 0]
                assert rest == [hands[rank] for hands in expected], (where, rank)
                if until_epoch == 2:
                    rest = [ids for epoch, ids in found if epoch == 1]
                    assert rest == [hands[rank] for hands in whole], (where, rank)
            changes += 1
    assert changes > 1_000


def test_two_changes_of_the_world_in_one_epoch(tmp_path: Path) -> None:
    """4 ranks, then 3, then 8: nothing is lost and nothing comes twice."""
    directory = write_stream(tmp_path / "stream", 61)
    order = global_order(61, 0, 1)
    for first, second in product(range(1, 7), range(1, 5)):
        delivered: list[int] = []
        state = None
        for world_size, batch, steps in ((4, 2, first), (3, 1, second), (8, 3, None)):
            loaders = [
                make_loader(
                    directory,
                    rank=rank,
                    world_size=world_size,
                    local_batch_size=batch,
                    seed=1,
                    drop_last=False,
                )
                for rank in range(world_size)
            ]
            if state is not None:
                for loader in loaders:
                    loader.load_state_dict(state)
            delivered += _by_position(loaders, steps)
            saved = [loader.state_dict() for loader in loaders]
            assert all(one == saved[0] for one in saved)
            state = saved[world_size - 1]
        assert delivered == order, (first, second)
        assert state is not None
        assert (state["epoch"], state["position"]) == (1, 0)


def test_a_larger_batch_with_too_few_samples_left_repeats_no_epoch(tmp_path: Path) -> None:
    """The documented loop, which calls set_epoch before each epoch, gives each epoch once.

    Two of ten samples are left when the batch grows from 2 to 5; drop_last leaves them out.
    """
    directory = write_stream(tmp_path / "stream", 10)
    loader = make_loader(directory, local_batch_size=2)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    assert loader.position == 8
    resumed = make_loader(directory, local_batch_size=5)
    resumed.load_state_dict(loader.state_dict())
    delivered = []
    for epoch in range(resumed.epoch, 3):
        resumed.set_epoch(epoch)
        delivered += [ids_of(batch) for batch in resumed]
    assert delivered == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] * 2
    assert resumed.epoch == 3


def _by_position(loaders: list[StatefulDataLoader], steps: int | None) -> list[int]:
    """The samples of the next steps, or of the rest of the epoch, in the global order."""
    iterators = [iter(loader) for loader in loaders]
    order: list[int] = []
    step = 0
    while steps is None or step < steps:
        hands = [ids_of(batch) for iterator in iterators for batch in _next(iterator)]
        if not hands:
            break
        assert len(hands) == len(loaders)
        order += [hand[row] for row in range(len(hands[0])) for hand in hands if row < len(hand)]
        step += 1
    return order


def _next(iterator: object) -> list[object]:
    """The next batch in a list, or an empty list at the end."""
    end = object()
    batch = next(iterator, end)  # type: ignore[call-overload]
    return [] if batch is end else [batch]
