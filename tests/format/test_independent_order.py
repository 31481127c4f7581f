"""The order of samples: the page's definition and examples against the packages."""

import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from format.independent import Part, block_checksum
from format.independent_json import crc32c
from format.independent_order import IndependentDelivery, order, philox_words
from guideloom.shuffle import FeistelShuffler
from guideloom_format import EpochPlan, FileIdentity, block_checksums
from guideloom_format import crc32c as packaged_crc32c

PAGE = (Path(__file__).parents[2] / "docs/reference/format.md").read_text(encoding="utf-8")

POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
VECTOR_HEAD = "| n | seed | epoch | positions | samples |\n|---|---|---|---|---|\n"
MAX_LENGTH = 2**62


def page_number(text: str) -> int:
    """A number as the page writes it: `1000`, `10⁹`, and 2⁶² less 1."""
    match = re.fullmatch(r"([0-9]+)([⁰¹²³⁴⁵⁶⁷⁸⁹]*)(\N{MINUS SIGN}1)?", text)
    assert match is not None, f"{text!r} in the page is not a number"
    base, exponent = int(match[1]), int(match[2].translate(POWERS) or 1)
    return int(base**exponent) - (match[3] is not None)


def page_numbers(text: str) -> list[int]:
    """A list of them: `0, 1, 2` or `0 … 9`."""
    if " … " in text:
        first, last = map(page_number, text.split(" … "))
        return list(range(first, last + 1))
    return [page_number(number) for number in text.split(", ")]


def page_vectors() -> list[tuple[int, int, int, list[int], list[int]]]:
    """The rows of the page's table of test vectors."""
    rows = PAGE.split(VECTOR_HEAD)[1].split("\n\n")[0].splitlines()
    vectors = []
    for row in rows:
        size, seed, epoch, positions, samples = row.strip("| ").split(" | ")
        numbers = page_number(size), page_number(seed), page_number(epoch)
        vectors.append((*numbers, page_numbers(positions), page_numbers(samples)))
    return vectors


def found(pattern: str) -> tuple[str, ...]:
    """The groups of the only match in the page."""
    matches = list(re.finditer(pattern, PAGE))
    assert len(matches) == 1, f"{pattern} stands {len(matches)} times in the page"
    return matches[0].groups()


def test_the_page_has_test_vectors_from_the_smallest_to_the_largest() -> None:
    vectors = page_vectors()
    assert [vector[0] for vector in vectors] == [1, 2, 10, 10, 1000, 10**9, MAX_LENGTH]
    assert all(len(positions) == len(samples) for *_, positions, samples in vectors)


@pytest.mark.parametrize("size, seed, epoch, positions, samples", page_vectors())
def test_both_orders_give_the_vectors_of_the_page(
    size: int, seed: int, epoch: int, positions: list[int], samples: list[int]
) -> None:
    shuffler = FeistelShuffler.from_seed(size, seed, epoch=epoch)
    assert shuffler.shuffle(np.array(positions)).tolist() == samples
    assert shuffler.unshuffle(np.array(samples)).tolist() == positions
    ours = order(size, seed, epoch)
    assert [ours.sample(position) for position in positions] == samples
    assert [ours.position(sample) for sample in samples] == positions


def test_the_philox_words_of_the_page() -> None:
    pattern = r"first Philox words for seed (\d+), epoch (\d+) are ((?:`[0-9a-f]{16}`(?:, )?)+)\."
    seed, epoch, listed = found(pattern)
    words = [int(word, 16) for word in re.findall("[0-9a-f]{16}", listed)]
    assert len(words) == 4
    assert list(islice(philox_words(int(seed), int(epoch)), 4)) == words
    sequence = np.random.SeedSequence(int(seed), spawn_key=(int(epoch),))
    assert np.random.Philox(sequence).random_raw(4).tolist() == words


def test_the_checksums_of_the_page() -> None:
    text, checksum = found(r"CRC32C of the ASCII text `(\d+)` is `([0-9a-f]{8})`")
    assert f"{crc32c(text.encode('ascii')):08x}" == checksum
    assert f"{packaged_crc32c(text.encode('ascii')):08x}" == checksum
    dataset_id, shard, number, token, size, modulus, first, second, whole = found(
        r"dataset `([0-9a-f]{32})`, shard (\d+), part (\d+), token `([0-9a-f]{16})`, and a file of "
        r"([\d,]+) bytes, byte i being i mod (\d+): the checksums of its two blocks are "
        r"`([0-9a-f]{8})` and `([0-9a-f]{8})`, the CRC32C of the whole file is `([0-9a-f]{8})`"
    )
    count = int(size.replace(",", ""))
    content = (np.arange(count) % int(modulus)).astype(np.uint8)
    part = Part(int(shard), int(number), token, count, "", {})
    data = content.tobytes()
    blocks = [block_checksum(dataset_id, part, k, data[65536 * k :][:65536]) for k in (0, 1)]
    assert [f"{block:08x}" for block in blocks] == [first, second]
    assert f"{crc32c(data):08x}" == whole
    identity = FileIdentity(dataset_id, int(shard), int(number), token, "elements")
    checksums, whole_found = block_checksums(identity.seed(), 0, content)
    assert checksums.tolist() == blocks
    assert f"{whole_found:08x}" == whole
    assert f"{packaged_crc32c(content):08x}" == whole


sizes = (
    st.integers(1, 300) | st.integers(1, MAX_LENGTH) | st.sampled_from([2**k for k in range(63)])
)
seeds = st.integers(0, 2**130) | st.sampled_from([2**k - 1 for k in (32, 64, 96, 128, 129)])
epochs = st.integers(0, 50) | st.integers(2**32 - 1, 2**70)


@settings(max_examples=200, deadline=None)
@given(sizes, seeds, epochs, st.data())
@example(size=MAX_LENGTH, seed=2**128, epoch=2**32, data=None)
@example(size=MAX_LENGTH - 1, seed=2**130, epoch=0, data=None)
def test_both_orders_agree(size: int, seed: int, epoch: int, data: st.DataObject | None) -> None:
    positions = [0, size // 2, size - 1]
    if data is not None:
        positions += data.draw(st.lists(st.integers(0, size - 1), max_size=5), "positions")
    shuffler = FeistelShuffler.from_seed(size, seed, epoch=epoch)
    ours = order(size, seed, epoch)
    samples = [ours.sample(position) for position in positions]
    assert shuffler.shuffle(np.array(positions)).tolist() == samples
    assert shuffler.shuffle(positions[-1]) == samples[-1]
    assert [ours.position(sample) for sample in samples] == positions
    assert shuffler.unshuffle(np.array(samples)).tolist() == positions


@pytest.mark.parametrize("size", [*range(20), 31, 64, 255, 256, 257, 272, 273, 289, 290, 1000])
def test_whole_orders_agree_and_are_permutations(size: int) -> None:
    """Sizes around 16 x 16 and 16 x 17, below and above which the table has other sides."""
    for epoch in (0, 1):
        ours = order(size, 7, epoch)
        samples = [ours.sample(position) for position in range(size)]
        assert sorted(samples) == list(range(size))
        shuffler = FeistelShuffler.from_seed(size, 7, epoch=epoch)
        assert shuffler.shuffle(np.arange(size)).tolist() == samples


@settings(max_examples=200, deadline=None)
@given(
    length=st.integers(0, 90),
    world_size=st.integers(1, 6),
    local_batch_size=st.integers(1, 7),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
    seed=seeds,
    epoch=st.integers(0, 50) | st.integers(2**32 - 1, 2**63 - 1),
    data=st.data(),
)
def test_both_deliver_the_same(
    *,
    length: int,
    world_size: int,
    local_batch_size: int,
    drop_last: bool,
    shuffle: bool,
    seed: int,
    epoch: int,
    data: st.DataObject,
) -> None:
    """For each step and rank, whatever the position that the run resumed at."""
    start = data.draw(st.integers(0, length), "start")
    ours = IndependentDelivery(length, world_size, local_batch_size, drop_last, start)
    in_order = order(length, seed, epoch)
    for rank in range(world_size):
        plan = EpochPlan(
            length,
            seed=seed,
            epoch=epoch,
            shuffle=shuffle,
            rank=rank,
            world_size=world_size,
            local_batch_size=local_batch_size,
            drop_last=drop_last,
            start=start,
        )
        assert len(plan) == ours.steps
        for step in range(ours.steps):
            positions = ours.positions(step, rank)
            samples = [in_order.sample(p) for p in positions] if shuffle else positions
            assert plan.positions(step).tolist() == positions
            assert plan.sample_ids(step).tolist() == samples
