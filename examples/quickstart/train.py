"""Train a small transformer on the dataset, in a run that goes on exactly after a kill.

Model, optimizer, step and loader are checkpointed together. Started again with the same run folder,
training goes on from the newest checkpoint, with the batch that comes next.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import checkpoint
import numpy as np
import torch
from compare import LOG, WEIGHTS
from dataset import storage
from model import CONTEXT, ByteTransformer, next_token_loss
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from guideloom import GuideLoomError, StatefulDataLoader

SEED = 42
BATCH = 16
SHOW_EVERY = 20


class Training:
    """Model, optimizer and step. `torch.distributed.checkpoint` saves it as a `Stateful`."""

    def __init__(self) -> None:
        self.model = ByteTransformer()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.step = 0

    def learn(self, windows: Tensor) -> float:
        """One optimizer step; the loss before it."""
        loss = next_token_loss(self.model, windows)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, but for the loader's position."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = state["step"]


def open_loader(directory: Path) -> StatefulDataLoader:
    """Windows of CONTEXT inputs and, shifted by one, CONTEXT labels, in shuffled order."""
    return StatefulDataLoader.from_storage(
        storage(directory),
        sequence_length=CONTEXT + 1,
        stride=CONTEXT,
        local_batch_size=BATCH,
        shuffle=True,
        shuffle_seed=SEED,
        num_workers=1,
        prefetch=4,
    )


def endless(loader: StatefulDataLoader) -> Iterator[dict[str, Tensor]]:
    """The batches from the loader's position on, epoch after epoch."""
    while True:
        yield from loader


def train(directory: Path, run: Path, steps: int, checkpoint_every: int) -> None:
    """Train up to `steps`, from the newest checkpoint of the run if there is one."""
    run.mkdir(parents=True, exist_ok=True)
    resuming = checkpoint.exists(run)
    if not resuming:
        torch.manual_seed(SEED)
    training = Training()
    with open_loader(directory) as loader, open_log(run / LOG) as log:
        if not len(loader):
            raise ValueError(f"{directory} has less text than one batch; write more")
        state = {"training": training, "loader": loader}
        if resuming:
            checkpoint.load(run, state)
            print(f"resume from step {training.step}")
        batches = endless(loader)
        while training.step < steps:
            loss = training.learn(next(batches)["tokens"])
            log.write(json.dumps({"step": training.step, "loss": loss}) + "\n")
            log.flush()
            if training.step % SHOW_EVERY == 0 or training.step in (1, steps):
                print(f"step {training.step:5d}   loss {loss:.4f}", flush=True)
            if training.step % checkpoint_every == 0 or training.step == steps:
                checkpoint.save(run, training.step, state)
    weights = {name: tensor.numpy() for name, tensor in training.model.state_dict().items()}
    np.savez(run / WEIGHTS, **weights)


def open_log(path: Path) -> TextIO:
    """The loss log, to append to. Half a line, which a kill can leave, is cut off."""
    with path.open("ab+") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
    return path.open("a")


def compute_deterministically() -> None:
    """Let the same input give the same bits, every time on this machine."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="the dataset's folder")
    parser.add_argument("--run", type=Path, required=True, help="folder for log and checkpoints")
    parser.add_argument("--steps", type=int, default=300, help="(default: %(default)s)")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="(default: %(default)s)")
    options = parser.parse_args()
    if options.checkpoint_every < 1:
        parser.error("--checkpoint-every must be at least 1")
    warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process is intended
    compute_deterministically()
    try:
        train(options.directory, options.run, options.steps, options.checkpoint_every)
    except (GuideLoomError, OSError, ValueError) as error:
        sys.exit(f"train.py: {error}")
    except KeyboardInterrupt:
        sys.exit("train.py: interrupted; the same command goes on")


if __name__ == "__main__":
    main()
