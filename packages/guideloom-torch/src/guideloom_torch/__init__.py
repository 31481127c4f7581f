"""The resumable PyTorch DataLoader over GuideLoom datasets."""

import numpy.random  # noqa: F401  # NumPy imports it at the first use: that of the first batch

from guideloom_torch._loader import StatefulDataLoader
from guideloom_torch._provenance import Located, LocatedSample
from guideloom_torch._stats import LoaderStats
from guideloom_torch._steps import MaskedBatch

__version__ = "0.1.0"

__all__ = ["LoaderStats", "Located", "LocatedSample", "MaskedBatch", "StatefulDataLoader"]
