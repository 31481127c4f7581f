"""The resumable PyTorch DataLoader over GuideLoom datasets."""

from guideloom_torch._loader import StatefulDataLoader

__version__ = "0.1.0"

__all__ = ["StatefulDataLoader"]
