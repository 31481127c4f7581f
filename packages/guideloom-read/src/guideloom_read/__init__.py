"""Random access to GuideLoom datasets: readers, datasets, I/O backends, verification."""

from guideloom_read._stream_dataset import StreamDataset, StreamDatasetReader
from guideloom_read._stream_reader import StreamReader
from guideloom_read._verify import Fault, VerifyReport, verify

__version__ = "0.1.0"

__all__ = [
    "Fault",
    "StreamDataset",
    "StreamDatasetReader",
    "StreamReader",
    "VerifyReport",
    "verify",
]
