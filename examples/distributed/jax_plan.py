"""JAX, without torch: `EpochPlan` says which samples are whose, the dataset's reader gives them.

A process for each rank, which knows its number and how many there are::

    python jax_plan.py DATASET RUN --world-size 2 --coordinator 127.0.0.1:7000 --rank 0 &
    python jax_plan.py DATASET RUN --world-size 2 --coordinator 127.0.0.1:7000 --rank 1

Killed, it goes on with the same commands, also with another number of ranks: a checkpoint is JSON,
and says how many samples of which epoch's order were delivered, over all ranks.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import (
    CONTEXT,
    GLOBAL_BATCH,
    SEED,
    VOCABULARY,
    RowLog,
    newest,
    storage,
    switch_to,
    write,
)
from jax.experimental.multihost_utils import sync_global_devices
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from guideloom import EpochPlan, StreamDataset

Weights = dict[str, Any]


def batches(
    reader: Any, rank: int, world_size: int, epoch: int, position: int
) -> Iterator[tuple[NDArray[np.uint8], int, int]]:
    """This rank's windows, epoch after epoch, from a place on; each batch with the place behind it.

    A place is an epoch, and how many samples of its order were delivered, over all ranks.
    """
    while True:
        plan = EpochPlan(
            len(reader),
            seed=SEED,
            epoch=epoch,
            shuffle=True,
            rank=rank,
            world_size=world_size,
            local_batch_size=GLOBAL_BATCH // world_size,
            start=position,
        )
        if not len(plan) and not position:
            raise ValueError(f"an epoch of {plan.length} samples has no batch of {GLOBAL_BATCH}")
        for step in range(len(plan)):
            yield reader.gather(plan.sample_ids(step))["tokens"], *plan.after(step + 1)
        epoch, position = epoch + 1, 0


def new_weights() -> Weights:
    """Of a model that predicts a byte from the one before it."""
    rng = np.random.default_rng(SEED)
    shapes = {"embed": (VOCABULARY, 16), "head": (16, VOCABULARY)}
    return {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


@jax.jit
def train(weights: Weights, windows: jax.Array) -> tuple[Weights, jax.Array]:
    """The weights after a step, and the mean loss over the windows of all ranks."""
    before, after = windows[:, :-1], windows[:, 1:].astype(jnp.int32)

    def loss(weights: Weights) -> jax.Array:
        found = jax.nn.log_softmax(weights["embed"][before] @ weights["head"])
        return -jnp.take_along_axis(found, after[..., None], axis=-1).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda weight, slope: weight - 3 * slope, weights, gradients), value


def save(run: Path, name: str, place: dict[str, Any], weights: Weights) -> None:
    """Write a checkpoint, and make it the newest one when it is whole."""
    values = {key: np.asarray(one).tolist() for key, one in weights.items()}
    (run / name).write_text(json.dumps({**place, "weights": values}))
    switch_to(run, name)


def main() -> None:
    """Train on this rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("run", type=Path, help="folder of the checkpoints")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--coordinator", help="address and free port of rank 0")
    parser.add_argument("--rows", type=Path, help="folder for what each rank was given")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint-every", type=int, default=5)
    given = parser.parse_args()
    rank, world_size = given.rank, given.world_size

    if world_size > 1:
        jax.distributed.initialize(
            given.coordinator,
            world_size,
            rank,
            cluster_detection_method="deactivate",
            coordinator_bind_address=given.coordinator,
        )
    if rank == 0:
        write(given.dataset)
        given.run.mkdir(parents=True, exist_ok=True)
    sync_global_devices("the dataset is there")
    ranks = Mesh(np.array(jax.devices()), ("rank",))
    dealt = NamedSharding(ranks, PartitionSpec("rank"))  # type: ignore[no-untyped-call]
    same = NamedSharding(ranks, PartitionSpec())  # type: ignore[no-untyped-call]
    log = RowLog(given.rows or given.run / "rows", rank)
    with StreamDataset(storage(given.dataset), CONTEXT + 1, CONTEXT).sync_reader() as reader:
        order = {**reader.identity(), "seed": SEED}
        state: dict[str, Any] = {"step": 0, "epoch": 0, "position": 0, "order": order}
        weights = new_weights()
        checkpoint = newest(given.run)
        if checkpoint is not None:
            state = json.loads(checkpoint.read_text())
            if state["order"] != order:
                raise ValueError(f"{checkpoint} is of {state['order']}, this run of {order}")
            weights = {name: np.float32(values) for name, values in state.pop("weights").items()}
        weights = jax.device_put(weights, same)
        step, at = state["step"], (state["epoch"], state["position"])
        for windows, epoch, position in batches(reader, rank, world_size, *at):
            if step == given.steps:
                break
            batch = jax.make_array_from_process_local_data(dealt, windows)  # type: ignore[no-untyped-call]
            weights, loss = train(weights, batch)
            step += 1
            log.add(step, float(loss), windows)
            if step % given.checkpoint_every == 0 or step == given.steps:
                sync_global_devices(f"step {step} is in the log of every rank")
                if rank == 0:
                    place = {"step": step, "epoch": epoch, "position": position, "order": order}
                    save(given.run, f"step-{step:06d}-of-{world_size}.json", place, weights)


if __name__ == "__main__":
    main()
