"""Lightning Fabric: the loader is saved and loaded like any other object of the state.

::

    torchrun --nproc-per-node 2 fabric.py DATASET RUN

Killed, it goes on with the same command, also with another number of ranks.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from common import RowLog, newest, switch_to, write
from lightning_fabric import Fabric
from torch_parts import Model, deterministic, open_loader


def main() -> None:
    """Train on this rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("run", type=Path, help="folder of the checkpoints")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint-every", type=int, default=5)
    parser.add_argument("--rows", type=Path, help="folder for what each rank was given")
    given = parser.parse_args()

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    fabric = Fabric(accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto")
    fabric.launch()
    with fabric.rank_zero_first():
        write(given.dataset)
    deterministic()
    model = Model()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    loader = open_loader(given.dataset, fabric.global_rank, fabric.world_size)
    state: dict[str, Any] = {"model": model, "optimizer": optimizer, "loader": loader, "step": 0}
    checkpoint = newest(given.run)
    if checkpoint is not None:
        fabric.load(checkpoint, state)
    rows = RowLog(given.rows or given.run / "rows", fabric.global_rank)
    while state["step"] < given.steps:
        for batch in loader:
            windows = batch["tokens"].long()
            loss = model(windows)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            state["step"] += 1
            rows.add(state["step"], loss.item(), windows.numpy())
            if state["step"] % given.checkpoint_every == 0 or state["step"] == given.steps:
                name = f"step-{state['step']:06d}-of-{fabric.world_size}.ckpt"
                fabric.save(given.run / name, state)
                if fabric.global_rank == 0:
                    switch_to(given.run, name)
                fabric.barrier()
            if state["step"] == given.steps:
                break
    loader.close()


if __name__ == "__main__":
    main()
