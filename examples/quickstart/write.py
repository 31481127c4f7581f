"""Write the dataset: the source files of Python's standard library, in four shards.

After an interruption, run the same command again: it goes on behind what was committed.
"""

import argparse
import platform
import sys
import sysconfig
from itertools import accumulate
from pathlib import Path

from dataset import END_OF_DOCUMENT, SHARDS, encode, storage
from tqdm import tqdm

from guideloom import GuideLoomError

SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
PROVENANCE = {
    "source": "the .py files of the Python standard library",
    "python": platform.python_version(),
    "tokenizer": f"one token per byte, {END_OF_DOCUMENT} at the end of a document",
    "licence": "PSF-2.0",
}


def find_documents(limit: int) -> list[Path]:
    """Source files in a fixed order, together at most `limit` bytes."""
    library = Path(sysconfig.get_paths()["stdlib"])
    documents = []
    for path in sorted(library.rglob("*.py")):
        if SKIPPED_FOLDERS.isdisjoint(path.relative_to(library).parts):
            limit -= path.stat().st_size
            if limit < 0:
                break
            documents.append(path)
    return documents


def missing(documents: list[Path], written: int) -> list[Path]:
    """The documents of a shard behind its first `written` tokens.

    Raises:
        ValueError: no document ends there; the shard was begun with other documents.
    """
    ends = [0, *accumulate(path.stat().st_size + 1 for path in documents)]
    if written not in ends:
        raise ValueError(
            "the dataset there was begun with other documents (another Python, another limit); "
            "choose a new folder"
        )
    return documents[ends.index(written) :]


def write(directory: Path, documents: list[Path], commit_every: int) -> None:
    """Append the documents that the dataset does not have yet, dealt to the shards in turn."""
    with storage(directory).sync_writer(user=PROVENANCE) as writer:
        todo = [
            (shard, path)
            for shard in range(SHARDS)
            for path in missing(documents[shard::SHARDS], writer.length(shard))
        ]
        done = len(documents) - len(todo)
        if done:
            print(f"{done} of {len(documents)} documents are there already")
        uncommitted = 0
        for shard, path in tqdm(todo, "write", len(documents), initial=done, unit=" documents"):
            tokens = encode(path.read_bytes())
            writer.append(shard, {"tokens": tokens})
            uncommitted += len(tokens)
            if uncommitted >= commit_every:
                writer.commit()
                uncommitted = 0


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="the dataset's folder; created if need be")
    parser.add_argument(
        "--bytes", type=int, default=8_000_000, help="limit for the text (default: %(default)s)"
    )
    parser.add_argument(
        "--commit-every",
        type=int,
        default=2_000_000,
        help="tokens between commits (default: %(default)s)",
    )
    options = parser.parse_args()
    try:
        write(options.directory, find_documents(options.bytes), options.commit_every)
    except (GuideLoomError, OSError, ValueError) as error:
        sys.exit(f"write.py: {error}")
    except KeyboardInterrupt:
        sys.exit("write.py: interrupted; the same command goes on")


if __name__ == "__main__":
    main()
