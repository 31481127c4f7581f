"""A small transformer that predicts the next byte. Nothing in it is particular to GuideLoom."""

import torch
from dataset import VOCABULARY
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

CONTEXT = 128
WIDTH = 96
HEADS = 4
LAYERS = 2


class ByteTransformer(nn.Module):
    """A decoder of about 0.3 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.mask: Tensor
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (batch, CONTEXT, VOCABULARY) for the tokens (batch, CONTEXT)."""
        hidden = self.tokens(inputs) + self.positions.weight
        hidden = self.layers(hidden, mask=self.mask, is_causal=True)
        logits: Tensor = self.head(hidden)
        return logits


def next_token_loss(model: nn.Module, windows: Tensor) -> Tensor:
    """Mean cross-entropy over windows of CONTEXT + 1 tokens: each predicts the one behind it."""
    windows = windows.to(torch.long)  # torch.uint16 is a type to store, not to index with
    logits = model(windows[:, :-1])
    return cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
