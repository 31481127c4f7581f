"""What the distributed examples with torch share: how the loader is opened, and a small model."""

from pathlib import Path

import torch
from common import CONTEXT, GLOBAL_BATCH, SEED, VOCABULARY, storage
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from guideloom import StatefulDataLoader


def open_loader(directory: Path, rank: int, world_size: int) -> StatefulDataLoader:
    """Windows of CONTEXT + 1 bytes; as many in a global batch on any number of ranks."""
    return StatefulDataLoader.from_storage(
        storage(directory),
        sequence_length=CONTEXT + 1,
        stride=CONTEXT,
        local_batch_size=GLOBAL_BATCH // world_size,
        rank=rank,
        world_size=world_size,
        shuffle=True,
        shuffle_seed=SEED,
        prefetch=2,
    )


class Model(nn.Module):
    """Predicts a byte from the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, windows: Tensor) -> Tensor:
        """The mean loss over windows of CONTEXT + 1 bytes."""
        logits = self.head(self.embed(windows[:, :-1]))
        return cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def deterministic() -> None:
    """The same input gives the same bits."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
