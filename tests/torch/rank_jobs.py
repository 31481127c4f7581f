"""What the ranks of a job do, each in a process of its own, joined by gloo."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from guideloom import StatefulDataLoader
from guideloom_torch.nodes import LoaderNode

from .collective_calls import counted
from .loader_cases import ids_of, make_loader, wait_until

SEED = 3
LOADING: dict[str, dict[str, Any]] = {
    "plain": {},
    "threads": {"num_workers": 2, "prefetch": 3},
    "processes": {
        "num_workers": 1,
        "prefetch": 1,
        "parallel_method": "process",
        "start_method": "fork",
    },
}


def all_in_loop(in_loop: bool) -> bool:
    """Meet all other ranks. An error, on every rank, if some are in the loop and others behind."""
    count = torch.tensor([int(in_loop)])
    dist.all_reduce(count)
    if int(count) not in (0, dist.get_world_size()):
        raise AssertionError(f"{int(count)} of {dist.get_world_size()} ranks are in the loop")
    return bool(count)


def every_step_together(folder: Path, cases: list[dict[str, Any]]) -> None:
    """The rest of an epoch for each case, step by step with the others; notes the samples."""
    found = []
    for case in cases:
        loader = make_loader(Path(case["directory"]), seed=SEED, **case["options"])
        if case["start"]:
            loader.load_state_dict({**loader.state_dict(), "position": case["start"]})
        steps = []
        with loader, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the epoch has no batch")
            for batch in loader:
                assert all_in_loop(True)
                steps.append(_counted(batch, loader, case["options"]))
        assert not all_in_loop(False)
        assert len(steps) == len(loader) or case["start"]
        found.append(steps)
    (folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(found))


def _counted(batch: Any, loader: StatefulDataLoader, options: dict[str, Any]) -> list[int]:
    """The samples of a batch that count."""
    if options.get("pad") is None:
        return ids_of(batch)
    samples, valid = batch
    ids = ids_of(samples)
    assert len(ids) == len(valid) == loader.global_batch_size // dist.get_world_size()
    return [k for k, counts in zip(ids, valid.tolist(), strict=True) if counts]


def train(
    folder: Path, datasets: list[str], states: list[str], seeds: list[int], loading: str
) -> None:
    """Go on at the rank's state in the rank's copy, meeting the others at every step.

    It ends as a script does whose author has not thought of errors.
    """
    rank = dist.get_rank()
    (folder / f"began-{rank}").touch()
    directory = Path(datasets[rank])
    loader = make_loader(directory, seed=seeds[rank], local_batch_size=2, **LOADING[loading])
    loader.load_state_dict(json.loads(states[rank]))
    for batch in loader:
        assert ids_of(batch)
        all_in_loop(True)
    all_in_loop(False)
    loader.close()


def live_alone(folder: Path, directory: str) -> None:
    """Each rank in turn does all that a loader can do, while the others sleep."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mesh = dist.device_mesh.init_device_mesh("cpu", (world_size,), mesh_dim_names=("dp",))["dp"]
    dist.barrier()
    assert wait_until(60, lambda: rank == 0 or (folder / f"lived-{rank - 1}").exists())
    steps = 0
    with counted() as calls:
        for place in ({}, {"mesh": mesh}, {"rank": rank, "world_size": world_size}):
            for name, loading in LOADING.items():
                for padding in ({}, {"drop_last": False}, {"drop_last": False, "pad": "mask"}):
                    if name != "processes" or not padding:
                        steps += _life(Path(directory), {**place, **loading, **padding})
    (folder / f"lived-{rank}").touch()
    assert wait_until(60, lambda: (folder / f"lived-{world_size - 1}").exists())
    found = {"steps": steps, "calls": calls.names(), "control": _what_is_counted()}
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))


def _life(directory: Path, options: dict[str, Any]) -> int:
    """Build, iterate, save, load, jump, look up, iterate anew, close; how many batches came."""
    options = {"seed": SEED, "local_batch_size": 2, "lookahead": 2, **options}
    with make_loader(directory, device="cpu", pin_memory=True, **options) as loader:
        assert len(loader) > 2
        states = [json.loads(json.dumps(loader.state_dict())) for _ in loader]
        steps = len(states)
        assert loader.epoch == 1
        loader.set_epoch(5)
        next(iter(loader))
        loader.seek(2)
        loader.skip(len(loader))
        loader.load_state_dict(states[1])
        steps += sum(1 for _ in loader)
        place = loader.locate(7, 1)
        assert place[0, 0] is not None
        assert loader.when(place[0, 0].sample, 7) == (7, 1, 0, 0)
        repr((loader, place, loader.stats(), loader.global_batch_size, loader.position))
        node = LoaderNode(loader)
        node.reset()
        steps += sum(1 for _ in _items(node))
        node.get_state()
        loader.close()
        steps += len([*loader])
    return steps


def _items(node: Any) -> Iterator[Any]:
    """What a node gives until its end."""
    while True:
        try:
            yield node.next()
        except StopIteration:
            return


def _what_is_counted() -> dict[str, list[str]]:
    """The calls that are counted when the ranks do speak to each other; all of them do."""
    ones = torch.ones(2)
    world_size = dist.get_world_size()
    objects: list[Any] = [None] * world_size
    tries: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(ones),
        "broadcast": lambda: dist.broadcast(ones, 0),
        "barrier": lambda: dist.barrier(),
        "monitored_barrier": lambda: dist.monitored_barrier(),
        "all_gather_object": lambda: dist.all_gather_object(objects, 1),
        "broadcast_object_list": lambda: dist.broadcast_object_list([1], 0),
        "functional": lambda: _functional(ones),
        "point to point": lambda: _round(ones),
        "new_group": lambda: dist.new_group(),
        "in a process that is forked": _wrong_in_a_fork,
        "store": lambda: dist.distributed_c10d._get_default_store().set("key", "value"),
    }
    found = {}
    for name, call in tries.items():
        with counted() as calls:
            call()
        found[name] = calls.names()
    return found


def _functional(ones: torch.Tensor) -> None:
    """An operator that torch's compiler uses; it does not go by way of Python."""
    op = torch.ops._c10d_functional
    op.wait_tensor(op.all_reduce(ones, "sum", dist.group.WORLD.group_name))  # type: ignore[union-attr]


def _round(ones: torch.Tensor) -> None:
    """To the next rank, and from the one before."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    send = dist.isend(ones, (rank + 1) % world_size)
    dist.recv(torch.empty(2), (rank - 1) % world_size)
    assert send is not None
    send.wait()


def _wrong_in_a_fork() -> None:
    """An error there, but called."""
    pid = os.fork()
    if not pid:
        with suppress(TypeError, ValueError, RuntimeError):
            dist.all_reduce(None)  # type: ignore[call-overload]
        os._exit(0)
    os.waitpid(pid, 0)


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job for job in (every_step_together, train, live_alone)
}
