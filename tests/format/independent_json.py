"""CRC32C and sealed JSON, made from `docs/reference/format.md` alone."""

import json
import stat
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

SEAL_SIZE = 25
LANE = 64
FEW = 4096  # bytes that are faster one by one
LARGEST = 2**62  # of lengths and sizes
LONGEST_STRING = 1024
REFLECTED_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41, bits in reverse order

Registers = NDArray[np.uint32]


class RefusedError(ValueError):
    """The page says that a reader refuses this."""


def _table() -> Registers:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ REFLECTED_POLYNOMIAL, table >> 1)
    return table.astype(np.uint32)


_TABLE = _table()
_NUMBERS = _TABLE.tolist()


def _fed(registers: Registers, column: NDArray[np.uint8]) -> Registers:
    """Each register after one more byte."""
    fed: Registers = _TABLE[(registers ^ column) & 0xFF] ^ registers >> 8
    return fed


def _shifted(registers: Registers, columns: Registers) -> Registers:
    """The linear map with these 32 columns, applied to each register."""
    result = np.zeros_like(registers)
    for bit in range(32):
        result ^= np.where(registers >> bit & 1, columns[bit], np.uint32(0))
    return result


@lru_cache(maxsize=64)  # documents of one block are read one after the other
def crc32c(data: bytes) -> int:
    """CRC32C of `data`.

    Few bytes go through the register one by one. For more, the register is linear in its input. So
    the data are cut into 2**k lanes of 64 bytes, which are worked on side by side; then neighbours
    are joined, the left one moved over the zeros that stand for the right one. Leading zeros do not
    alter an empty register and fill the first lanes; the initial value is an XOR on the first four
    bytes.
    """
    if len(data) <= FEW:
        register = 0xFFFFFFFF
        for byte in data:
            register = _NUMBERS[(register ^ byte) & 0xFF] ^ register >> 8
        return int(register) ^ 0xFFFFFFFF
    lanes = 1 << max(0, -(-len(data) // LANE) - 1).bit_length()
    padded = np.zeros(lanes * LANE, np.uint8)
    start = len(padded) - len(data)
    padded[start:] = np.frombuffer(data, np.uint8)
    padded[start : start + 4] ^= 0xFF
    registers = np.zeros(lanes, np.uint32)
    for column in padded.reshape(lanes, LANE).T:
        registers = _fed(registers, column)
    zeros = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(LANE):
        zeros = _fed(zeros, np.zeros(1, np.uint8))
    while len(registers) > 1:
        registers = _shifted(registers[0::2], zeros) ^ registers[1::2]
        zeros = _shifted(zeros, zeros)
    return int(registers[0]) ^ 0xFFFFFFFF


def regular_size(path: Path) -> int:
    """The size of a regular file; anything else is refused, a symbolic link too."""
    facts = path.lstat()
    if not stat.S_ISREG(facts.st_mode):
        raise RefusedError(f"{path}: not a regular file")
    return facts.st_size


def _strict_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise RefusedError("a member name stands twice in one object")
    return members


def _no_constant(name: str) -> NoReturn:
    raise RefusedError(f"{name} is not JSON")


def _float64(digits: str) -> float:
    if abs(float(digits)) == float("inf"):
        raise RefusedError(f"{digits} is beyond the numbers of float64")
    return float(digits)


def read_sealed(path: Path, limit: int) -> "Members":
    """The object in a sealed file of at most `limit` bytes."""
    if regular_size(path) > limit:
        raise RefusedError(f"{path}: larger than {limit} bytes")
    content = path.read_bytes()
    body, seal = content[:-SEAL_SIZE], content[-SEAL_SIZE:]
    if seal != b',\n"crc32c": "%08x"\n}\n' % crc32c(body):
        raise RefusedError(f"{path}: the seal is not that of the content")
    try:
        value = json.loads(
            body.decode("ascii") + "}",
            object_pairs_hook=_strict_object,
            parse_constant=_no_constant,
            parse_float=_float64,
        )
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{path}: {error}") from error
    return Members(str(path), value)


class Members:
    """A JSON object whose members are taken by name and type."""

    def __init__(self, place: str, value: object) -> None:
        if not isinstance(value, dict):
            raise RefusedError(f"{place}: not an object")
        self.place = place
        self._value: dict[str, object] = value

    def any(self, name: str) -> object:
        if name not in self._value:
            raise RefusedError(f"{self.place}: no member {name!r}")
        return self._value[name]

    def text(self, name: str) -> str:
        value = self.any(name)
        if not isinstance(value, str):
            raise RefusedError(f"{self.place}: {name} is {value!r}, not a string")
        if len(value) > LONGEST_STRING:
            raise RefusedError(f"{self.place}: {name} has {len(value)} characters")
        return value

    def constant(self, name: str, value: str) -> None:
        if self.text(name) != value:
            raise RefusedError(f"{self.place}: {name} is {self.text(name)!r}, not {value!r}")

    def integer(self, name: str, last: int | None) -> int:
        return _integer(f"{self.place}: {name}", self.any(name), last)

    def child(self, name: str) -> "Members":
        return Members(f"{self.place}: {name}", self.any(name))

    def array(self, name: str) -> list[object]:
        value = self.any(name)
        if not isinstance(value, list):
            raise RefusedError(f"{self.place}: {name} is not an array")
        return value

    def texts(self, name: str) -> list[str]:
        values = self.array(name)
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) != len(values):
            raise RefusedError(f"{self.place}: {name} holds something that is not a string")
        if any(len(text) > LONGEST_STRING for text in texts):
            raise RefusedError(f"{self.place}: {name} holds a string that is too long")
        return texts

    def integers(self, name: str, last: int) -> list[int]:
        place = f"{self.place}: {name}"
        return [_integer(place, value, last) for value in self.array(name)]


def _integer(place: str, value: object, last: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedError(f"{place} is {value!r}, not an integer")
    if last is not None and not 0 <= value <= last:
        raise RefusedError(f"{place} is {value!r}, not from 0 to {last}")
    return value


def sealed(body: bytes) -> bytes:
    """A sealed file: `body` is a JSON object without its last brace."""
    return body + b',\n"crc32c": "%08x"\n}\n' % crc32c(body)


def unsealed(data: bytes) -> bytes:
    """What `sealed` was made from."""
    return data[:-SEAL_SIZE]
