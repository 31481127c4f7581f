"""x."""

import torch


def f() -> torch.Tensor:
    return torch.zeros(2)
