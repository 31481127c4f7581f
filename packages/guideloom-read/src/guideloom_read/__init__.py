"""Random access to GuideLoom datasets: readers, datasets, I/O backends, verification."""

from guideloom_read._batches import Padded, Ragged, SpanBatch
from guideloom_read._document_dataset import DocumentDataset
from guideloom_read._document_reader import DocumentReader
from guideloom_read._open_storage import open  # noqa: A004  # called as guideloom.open
from guideloom_read._spans_reader import StreamWithMetaReader
from guideloom_read._stream_dataset import StreamDataset, StreamDatasetReader
from guideloom_read._stream_reader import StreamReader
from guideloom_read._verify import verify
from guideloom_read._verify_report import Fault, VerifyReport

__version__ = "0.1.0"

__all__ = [
    "DocumentDataset",
    "DocumentReader",
    "Fault",
    "Padded",
    "Ragged",
    "SpanBatch",
    "StreamDataset",
    "StreamDatasetReader",
    "StreamReader",
    "StreamWithMetaReader",
    "VerifyReport",
    "open",
    "verify",
]
