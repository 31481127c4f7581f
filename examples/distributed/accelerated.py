"""Hugging Face Accelerate: the loader is registered for checkpoints; its batches are its own.

::

    torchrun --nproc-per-node 2 accelerated.py DATASET RUN

Killed, it goes on with the same command, also with another number of ranks. The loader is not given
to `accelerator.prepare`, which would deal its batches to the ranks once more.
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from common import RowLog, newest, switch_to, write
from torch_parts import Model, deterministic, open_loader


class Progress:
    """The number of steps, for the checkpoint."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, int]:
        """The number."""
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take it over."""
        self.step = state["step"]


def main() -> None:
    """Train on this rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("run", type=Path, help="folder of the checkpoints")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint-every", type=int, default=5)
    parser.add_argument("--rows", type=Path, help="folder for what each rank was given")
    given = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    with accelerator.main_process_first():
        write(given.dataset)
    deterministic()
    model = Model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    loader = open_loader(given.dataset, accelerator.process_index, accelerator.num_processes)
    progress = Progress()
    accelerator.register_for_checkpointing(loader, progress)
    checkpoint = newest(given.run)
    if checkpoint is not None:
        accelerator.load_state(str(checkpoint))
    rows = RowLog(given.rows or given.run / "rows", accelerator.process_index)
    while progress.step < given.steps:
        for batch in loader:
            windows = batch["tokens"].long()
            loss = model(windows)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            progress.step += 1
            rows.add(progress.step, loss.item(), windows.numpy())
            if progress.step % given.checkpoint_every == 0 or progress.step == given.steps:
                name = f"step-{progress.step:06d}-of-{accelerator.num_processes}"
                accelerator.save_state(str(given.run / name))
                if accelerator.is_main_process:
                    switch_to(given.run, name)
                accelerator.wait_for_everyone()
            if progress.step == given.steps:
                break
    loader.close()
    accelerator.end_training()


if __name__ == "__main__":
    main()
