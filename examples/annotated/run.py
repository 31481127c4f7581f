"""Text with annotations: every document carries an id and a list of concepts, of any length.

Documents are the docstrings of Python's standard library, tokens are bytes, and a concept is a
topic with the number of times that the docstring names it. Writes them as one stream in three
shards, reads windows of it, and draws one with the documents in it. Takes a few seconds.
"""

import argparse
import importlib
import inspect
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from guideloom import (
    DocumentJSONFormat,
    GuideLoomError,
    SpanBatch,
    SpanWindow,
    StatefulDataLoader,
    StreamDataset,
    StreamSpansFormat,
    StreamWithMetaStorage,
)

# fmt: off
MODULES = (
    "argparse", "ast", "bisect", "calendar", "copy", "difflib", "dis", "fnmatch", "functools",
    "glob", "heapq", "json", "locale", "operator", "pickletools", "platform", "pprint",
    "random", "shutil", "statistics", "tempfile", "textwrap", "tokenize", "traceback", "typing",
)
TOPICS = (
    "class", "dict", "file", "function", "iterable", "list", "number", "object", "path",
    "sequence", "string", "time", "tuple",
)
# fmt: on
SHARDS = 3
COMMIT_EVERY = 20  # documents
WINDOW = 64
BATCH = 8


class Document(NamedTuple):
    """A text and what is known about it."""

    text: bytes
    annotation: dict[str, Any]


# Describe the dataset: once, for its writer and for all of its readers.


def storage(directory: Path) -> StreamWithMetaStorage:
    """A stream of bytes; each of its spans is a document, with an annotation in JSON."""
    return StreamWithMetaStorage(directory, StreamSpansFormat("u1", DocumentJSONFormat()))


def find_documents() -> list[Document]:
    """What the public functions of some modules say of themselves, in a fixed order."""
    documents = []
    for module in map(importlib.import_module, MODULES):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            docstring = inspect.getdoc(function)
            if docstring and function.__module__ == module.__name__ and name[0] != "_":
                documents.append(annotate(f"{module.__name__}.{name}", docstring))
    return documents


def annotate(name: str, docstring: str) -> Document:
    """The first paragraph is the text; the concepts come from all of it."""
    words = Counter(docstring.lower().replace(".", " ").replace(",", " ").split())
    summary = " ".join(docstring.split("\n\n")[0].split()) + "\n"
    concepts = [[topic, words[topic]] for topic in TOPICS if words[topic]]
    return Document(summary.encode(), {"id": name, "concepts": concepts})


# Write. After an interruption the same call goes on behind what was committed.


def write(directory: Path, documents: list[Document]) -> int:
    """Deal the documents to the shards in turn; how many were not there yet."""
    added = 0
    with storage(directory).sync_writer(user={"source": "Python's standard library"}) as writer:
        for shard in range(SHARDS):
            todo = missing(documents[shard::SHARDS], writer.length(shard))
            added += len(todo)
            for begin in range(0, len(todo), COMMIT_EVERY):
                some = todo[begin : begin + COMMIT_EVERY]
                tokens = np.frombuffer(b"".join(document.text for document in some), np.uint8)
                lengths = [len(document.text) for document in some]
                writer.append(shard, (tokens, lengths, [item.annotation for item in some]))
                writer.commit()
    return added


def missing(documents: list[Document], written: int) -> list[Document]:
    """The documents of a shard behind its first `written` tokens."""
    ends = [0, *accumulate(len(document.text) for document in documents)]
    if written not in ends:
        raise ValueError("the dataset there has other documents; choose a new folder")
    return documents[ends.index(written) :]


# Read one window: its tokens, and the annotation of every document in it.


def draw(window: SpanWindow) -> str:
    """The tokens, and below them a bar for each document, with its id and concepts."""
    lines = ["".join(chr(token) if 32 <= token < 127 else "¶" for token in window.stream)]
    for number, annotation in enumerate(window.payloads):
        (places,) = np.nonzero(window.span_index == number)
        bar = "└" + "─" * (len(places) - 2) + "┘" if len(places) > 1 else "│"
        concepts = ", ".join(f"{topic} {count}" for topic, count in annotation["concepts"])
        label = f"{annotation['id']}: {concepts or 'no concepts'} (shard {window.shards[number]})"
        lines.append(f"{' ' * places[0] + bar:{len(window.stream)}}  {label}")
    return "\n".join(lines)


def windows_across_shards(windows: Any) -> Iterator[int]:
    """The numbers of the windows whose documents lie in several shards."""
    return (number for number, window in enumerate(windows) if len(set(window.shards)) > 1)


# Read a batch: arrays for all of its windows, as attention within documents needs them.


def show_batch(batch: SpanBatch) -> None:
    """What a batch tells of its tokens, for its first window."""
    documents, positions = batch.document_ids()[0], batch.position_ids()[0]
    starts = np.flatnonzero(positions == 0)[1:]
    numbers = [f"{len(run)} x {run[0]}" for run in np.split(documents, starts)]
    places = [f"{run[0]} to {run[-1]}" for run in np.split(positions, starts)]
    print("document_ids ", ", ".join(numbers))
    print("position_ids ", ", ".join(places))
    print("cu_seqlens   ", ", ".join(map(str, batch.cu_seqlens())), "over all windows")


def tokens_about(batch: SpanBatch, topic: str) -> torch.Tensor:
    """Which tokens belong to documents with a concept: (batch, WINDOW), for example for a loss.

    Every payload is looked at once, however many windows it touches.
    """
    assert batch.payloads is not None  # gather reads them unless told not to
    annotations = [json.loads(bytes(payload.numpy())) for payload in batch.payloads.arrays()]
    about = torch.tensor([topic in dict(item["concepts"]) for item in annotations])
    per_piece = about[batch.payload_index]  # a piece is what one window has of one document
    return per_piece.repeat_interleave(batch.lengths).reshape(batch.stream.shape)


def count_tokens(directory: Path, topic: str) -> tuple[int, int]:
    """Tokens in an epoch of shuffled batches, and how many of them are about a topic."""
    total = about = 0
    loader = StatefulDataLoader.from_storage(
        storage(directory),
        sequence_length=WINDOW,
        local_batch_size=BATCH,
        shuffle=True,
        drop_last=False,
        num_workers=1,
    )
    with loader:
        for batch in loader:
            mask = tokens_about(batch, topic)
            total += mask.numel()
            about += int(mask.sum())
    return total, about


def demonstrate(directory: Path, limit: int | None, topic: str) -> None:
    """Write, draw, gather, and load."""
    documents = find_documents()[:limit]
    added = write(directory, documents)
    print(f"{len(documents)} documents in {SHARDS} shards, {added} of them written now")
    with StreamDataset(storage(directory), WINDOW).sync_reader() as windows:
        number, last = next(windows_across_shards(windows), 0), len(windows) - 1
        print(f"\nWindow {number} of {len(windows)}:\n")
        print(draw(windows[number]))
        print(f"\nWindows {number} and {last} as a batch:\n")
        show_batch(windows.gather([number, last]))
    total, about = count_tokens(directory, topic)
    print(f"\nOf the {total} tokens of an epoch {about} are in documents about {topic!r}.")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where to write and keep the dataset")
    parser.add_argument("--documents", type=int, help="at most so many (default: all)")
    parser.add_argument("--topic", choices=TOPICS, default="list", help="(default: %(default)s)")
    options = parser.parse_args()
    if options.documents is not None and options.documents < SHARDS:
        parser.error(f"--documents must be at least {SHARDS}, one for each shard")
    try:
        with tempfile.TemporaryDirectory(prefix="guideloom-annotated-") as temporary:
            folder = options.folder or Path(temporary) / "dataset"
            demonstrate(folder, options.documents, options.topic)
    except (GuideLoomError, OSError, ValueError) as error:
        sys.exit(f"run.py: {error}")
    except KeyboardInterrupt:
        sys.exit("run.py: interrupted; the same command goes on")


if __name__ == "__main__":
    main()
