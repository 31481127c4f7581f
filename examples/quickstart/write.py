"""Write the dataset: the source files of Python's standard library, dealt to four shards.

A run that was interrupted goes on where its last commit left off, when it is started again.
"""

import argparse
import platform
import sys
import sysconfig
from pathlib import Path

from dataset import END_OF_DOCUMENT, SHARDS, encode, storage
from tqdm import tqdm

from guideloom import GuideLoomError

SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
PROVENANCE = {
    "source": "the .py files of the Python standard library",
    "python": platform.python_version(),
    "tokenizer": f"a token per byte, {END_OF_DOCUMENT} at the end of a document",
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


def write(directory: Path, documents: list[Path], commit_every: int) -> None:
    """Append the documents that the dataset does not have yet.

    Raises:
        ValueError: the dataset was begun with other documents.
    """
    with (
        storage(directory).sync_writer(user=PROVENANCE) as writer,
        tqdm(total=len(documents), unit=" documents", desc="write") as progress,
    ):
        written = [writer.length(shard) for shard in range(SHARDS)]
        uncommitted = 0
        for number, path in enumerate(documents):
            shard = number % SHARDS
            tokens = encode(path.read_bytes())
            if written[shard] > 0:
                written[shard] -= len(tokens)
            else:
                writer.append(shard, {"tokens": tokens})
                uncommitted += len(tokens)
            if written[shard] < 0:
                break
            if uncommitted >= commit_every:
                writer.commit()
                uncommitted = 0
            progress.update()
        if any(written):
            raise ValueError(
                f"{directory} was begun with other documents (another Python, or other options); "
                "choose a new folder"
            )


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="the dataset's folder; created if need be")
    parser.add_argument(
        "--bytes", type=int, default=8_000_000, help="size limit of the text (default: %(default)s)"
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
