"""Plain DDP with checkpoints of `torch.distributed.checkpoint`, on any number of ranks.

::

    torchrun --nproc-per-node 2 ddp.py DATASET RUN

Killed, it goes on with the same command, also with another number of ranks: the loader's state is
a position in the global order.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common import RowLog, newest, switch_to, write
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel
from torch_parts import Model, deterministic, open_loader


def main() -> None:
    """Train on this rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("run", type=Path, help="folder of the checkpoints")
    parser.add_argument("--rows", type=Path, help="folder for what each rank was given")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint-every", type=int, default=5)
    given = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        write(given.dataset)
    dist.barrier()
    deterministic()
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = open_loader(given.dataset, rank, world_size)
    step = 0
    checkpoint = newest(given.run)
    if checkpoint is not None:
        weights, moments = get_state_dict(model, optimizer)
        state: dict[str, Any] = {
            "model": weights,
            "optimizer": moments,
            "loader": loader,
            "step": step,
        }
        state_dict_loader.load(state, checkpoint_id=checkpoint)
        set_state_dict(
            model, optimizer, model_state_dict=weights, optim_state_dict=state["optimizer"]
        )
        step = state["step"]
    log = RowLog(given.rows or given.run / "rows", rank)
    while step < given.steps:
        for batch in loader:
            windows = batch["tokens"].long()
            loss = model(windows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            log.add(step, loss.item(), windows.numpy())
            if step % given.checkpoint_every == 0 or step == given.steps:
                name = f"step-{step:06d}-of-{world_size}"
                weights, moments = get_state_dict(model, optimizer)
                state = {"model": weights, "optimizer": moments, "loader": loader, "step": step}
                state_dict_saver.save(state, checkpoint_id=given.run / name)
                if rank == 0:
                    switch_to(given.run, name)
                dist.barrier()
            if step == given.steps:
                break
    loader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
