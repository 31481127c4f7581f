"""What the example of annotated text should write and print, by a model of its own."""

import importlib
import importlib.util
import re
import types
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import guideloom

SCRIPT = Path(__file__).parents[2] / "examples" / "annotated" / "run.py"
SHARDS, WINDOW = 3, 64


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location("annotated_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load_example()


class Span(NamedTuple):
    text: str
    name: str
    concepts: list[list[Any]]
    shard: int


@cache
def documents() -> list[tuple[str, str, list[list[Any]]]]:
    """Text, id and concepts, found in another way than the example does."""
    found = []
    for module_name in example.MODULES:
        module = importlib.import_module(module_name)
        for name, value in sorted(vars(module).items()):
            own = isinstance(value, types.FunctionType) and value.__module__ == module.__name__
            if own and value.__doc__ and not name.startswith("_"):
                docstring = cleandoc(value.__doc__)
                words = re.split(r"[\s.,]+", docstring.lower())
                concepts = [[topic, words.count(topic)] for topic in example.TOPICS]
                text = re.sub(r"\s+", " ", docstring.partition("\n\n")[0].strip()) + "\n"
                found.append((text, f"{module_name}.{name}", [c for c in concepts if c[1]]))
    return found


def spans(limit: int | None) -> list[Span]:
    """In the order of the stream: dealt to the shards in turn, one shard after the other."""
    dealt = documents()[:limit]
    return [Span(*one, shard) for shard in range(SHARDS) for one in dealt[shard::SHARDS]]


def owners(limit: int | None) -> list[int]:
    """For each byte of the stream the number of its span."""
    numbered = enumerate(spans(limit))
    return [number for number, span in numbered for _ in span.text.encode()]


def first_across_shards(limit: int | None) -> int:
    """The first window that has documents of two shards."""
    numbers, all_spans = owners(limit), spans(limit)
    for window in range(len(numbers) // WINDOW):
        within = numbers[window * WINDOW : (window + 1) * WINDOW]
        if all_spans[within[0]].shard != all_spans[within[-1]].shard:
            return window
    return 0


def picture(limit: int | None, window: int) -> list[str]:
    """The lines that the window should be drawn as, made column by column."""
    stream = "".join(span.text for span in spans(limit)).encode()
    columns = range(window * WINDOW, (window + 1) * WINDOW)
    numbers = owners(limit)
    lines = ["".join(chr(stream[k]) if 32 <= stream[k] < 127 else "¶" for k in columns)]
    for number in sorted({numbers[k] for k in columns}):
        mine = [numbers[k] == number for k in columns]
        bar = ""
        for column, here in enumerate(mine):
            begins = here and (column == 0 or not mine[column - 1])
            ends = here and (column == WINDOW - 1 or not mine[column + 1])
            if begins and ends:
                bar += "│"
            else:
                bar += "└" if begins else "┘" if ends else "─" if here else " "
        span = spans(limit)[number]
        concepts = ", ".join(f"{topic} {count}" for topic, count in span.concepts)
        lines.append(f"{bar}  {span.name}: {concepts or 'no concepts'} (shard {span.shard})")
    return lines


def runs(values: list[int]) -> list[list[int]]:
    """Equal neighbours together."""
    found: list[list[int]] = []
    for value in values:
        if found and found[-1][0] == value:
            found[-1].append(value)
        else:
            found.append([value])
    return found


def output(limit: int | None, topic: str = "list") -> str:
    """All that the script prints behind its first line."""
    numbers = owners(limit)
    count, first = len(numbers) // WINDOW, first_across_shards(limit)
    drawn = runs(numbers[first * WINDOW : (first + 1) * WINDOW])
    other = runs(numbers[(count - 1) * WINDOW : count * WINDOW])
    ends = [0]
    for run_of_one in drawn + other:
        ends.append(ends[-1] + len(run_of_one))
    about = [any(topic == one for one, _ in span.concepts) for span in spans(limit)]
    total = count * WINDOW
    relevant = sum(about[number] for number in numbers[:total])
    lines = [
        f"Window {first} of {count}:",
        "",
        *picture(limit, first),
        "",
        f"Windows {first} and {count - 1} as a batch:",
        "",
        "document_ids  " + ", ".join(f"{len(one)} x {one[0]}" for one in drawn),
        "position_ids  " + ", ".join(f"0 to {len(one) - 1}" for one in drawn),
        "cu_seqlens    " + ", ".join(map(str, ends)) + " over all windows",
        "",
        f"Of the {total} tokens of an epoch {relevant} are in documents about {topic!r}.",
    ]
    return "\n".join(lines) + "\n"


def said(added: int, limit: int | None, topic: str = "list") -> str:
    count = len(documents()[:limit])
    head = f"{count} documents in {SHARDS} shards, {added} of them written now\n\n"
    return head + output(limit, topic)


def content(directory: Path) -> list[Span]:
    """What any reader finds in a dataset, without the example's code."""
    storage: Any = guideloom.open(directory)
    with storage.sync_reader() as reader:
        window = reader.read(0, len(reader))
    text = window.stream.tobytes()
    ends = [*np.flatnonzero(np.diff(window.span_index)) + 1, len(text)]
    texts = [text[a:b].decode() for a, b in zip([0, *ends], ends, strict=False)]
    return [
        Span(one, payload["id"], payload["concepts"], shard)
        for one, payload, shard in zip(texts, window.payloads, window.shards, strict=True)
    ]
