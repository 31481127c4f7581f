"""Messages of several writers to shared shards: short runs of elements that say whose they are.

So whoever reads sees whole messages, each once and where it belongs, or something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DatasetNotFoundError, IOReader, StreamNumpyFormat, StreamStorage
from guideloom_write import StreamWriter

Message = tuple[int, int, int]
"""(writer, shard, number): each from 0 to 255, and writers from 1."""

Shards = dict[int, list[Message]]
ELEMENT = np.dtype([("place", "<u4")])


def storage(directory: Path, io: IOReader | None = None) -> StreamStorage:
    return StreamStorage(directory, StreamNumpyFormat(ELEMENT), io)


def elements_of(message: Message) -> NDArray[np.uint32]:
    """One to four elements; the first says the message, the others count from there."""
    writer, shard, number = message
    start = writer << 24 | shard << 16 | number << 8
    return np.arange(start, start + 1 + (writer + 2 * number) % 4, dtype=np.uint32)


def append(writer: StreamWriter, message: Message) -> None:
    writer.append(message[1], {"place": elements_of(message)})


def messages_in(directory: Path, io: IOReader | None = None) -> Shards | None:
    """The messages of each shard as a reader finds them, all of them whole; None: no dataset."""
    try:
        with storage(directory, io).sync_reader() as reader:
            found = reader.read(0, len(reader))["place"]
    except DatasetNotFoundError:
        return None
    shards: Shards = {}
    at = 0
    while at < found.size:
        first = int(found[at])
        message = (first >> 24, first >> 16 & 255, first >> 8 & 255)
        expected = elements_of(message)
        assert np.array_equal(found[at : at + expected.size], expected), f"{message} is torn"
        assert message[1] >= max(shards, default=0), "shards out of order"
        shards.setdefault(message[1], []).append(message)
        at += expected.size
    return shards


def all_of(shards: Shards) -> list[Message]:
    """The messages of all shards, each of which is there once."""
    messages = [message for found in shards.values() for message in found]
    assert len(set(messages)) == len(messages), f"written twice: {messages}"
    return messages


def write_before(directory: Path, messages: Iterable[Message] = ()) -> None:
    """A dataset with these messages, a part for each."""
    with StreamWriter(storage(directory)) as writer:
        for message in messages:
            append(writer, message)
            writer.commit()
