"""x."""

import numpy as np
import torch
from guideloom import StatefulDataLoader
from guideloom_format import StreamStorage, StreamNumpyFormat

from .loader_cases import f


def test_it() -> None:
    x: torch.Tensor = f()
    print(__name__, __package__, torch.__file__)
