"""The runs during which the power fails, for data of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from write.known_content import COMMIT, KNOWN_ELEMENTS, Known
from write.known_documents import KnownDocuments
from write.known_spans import KnownSpans
from write.power_loss import PowerScenario
from write.power_machine import Event, Machine, Mark, Named
from write.power_processes import (
    HOME,
    Process,
    Step,
    after_link,
    cleaned,
    completed,
    consolidated,
    finished,
    job_done,
)
from write.power_promises import Promises

KINDS: dict[str, Known[Any]] = {
    "stream": KNOWN_ELEMENTS,
    "document": KnownDocuments(),
    "stream-with-meta": KnownSpans(),
}
BLOCK = 65536
PAST_THE_BUFFER = {"stream": 8000, "document": 2300, "stream-with-meta": 8500}
"""How many elements or documents are more than 64 KiB."""

SHARDS = {"stream": 3, "document": 2, "stream-with-meta": 2}
"""How many where there are several: there are more states the more files a part has."""

FIRST = Process([(0, 150)])
SECOND = Process([(0, 150)])
JOB = job_done("copy", {3: 70, 1001: 9})


def scenarios(kind: str) -> list[PowerScenario]:
    """All of them; the names are unique."""
    past = PAST_THE_BUFFER[kind]
    shards = SHARDS[kind]
    several = [*((shard, 60 + 70 * shard) for shard in range(shards)), COMMIT, (1, 60)]
    return [
        PowerScenario("first commit", [FIRST]),
        PowerScenario("second part", [SECOND], before=[Process([(0, 100)])]),
        PowerScenario("several shards and parts", [Process(several)]),
        PowerScenario("parts of two folders", [Process([(999, 60), (1000, 70)])]),
        PowerScenario(
            "finished shards", [Process([(0, 60), finished(0), finished(1), (2, 5), finished(2)])]
        ),
        PowerScenario(
            "more shards than open parts",
            [Process([(shard, 40) for _ in range(2) for shard in range(shards)])],
            most_open=1,
        ),
        PowerScenario("small parts", [Process([(0, 3), COMMIT] * 4)], most_open=1),
        PowerScenario("past the buffer", [Process([(0, past), (0, 200)])], buffer=BLOCK),
        PowerScenario(
            "consolidation",
            [Process([consolidated]), Process([(0, 7), COMMIT, consolidated, (1, 5)])],
            before=[Process([(0, 20), (1, 5), COMMIT, (0, 3)])],
        ),
        PowerScenario(
            "cleaning",
            [
                Process([(1, 30), COMMIT, (0, 20)], die_at=after_link),
                Process([consolidated]),
                Process([(0, 7), COMMIT, consolidated, cleaned([])]),
            ],
            before=[Process([(0, 20)])],
        ),
        PowerScenario(
            "a job of several shards",
            [Process([JOB])],
            before=[Process([(0, 20)])],
            again=[JOB],
        ),
    ]


def killed(
    kind: str,
    steps: Sequence[Step],
    again: Sequence[Step] = (),
    before: Sequence[Process] = (),
) -> Iterator[PowerScenario]:
    """A process is killed, at each of its calls in turn; another one completes its work.

    The power fails in the second one. What the first one left is not durable by itself.

    Args:
        kind: of the data.
        steps: what the process does that is killed.
        again: what is done then; when left out, each shard is completed.
        before: processes before both of them.
    """
    machine = Machine([HOME])
    for process in before:
        process.run(KINDS[kind], machine)
    count = len(Process(steps).run(KINDS[kind], machine).calls)
    wanted = Promises.at(machine, len(machine.events)).lengths()
    for n in range(1, count + 1):
        yield PowerScenario(
            f"killed at call {n}, then again",
            [Process(again or [completed(wanted)])],
            before=[*before, Process(steps, die_at=n)],
            again=again,
        )


def told(event: Event) -> bool:
    """Whether a call returned that promises something."""
    return isinstance(event, Mark)


def published(event: Event) -> bool:
    """Whether something became visible, or a call returned."""
    return told(event) or (isinstance(event, Named) and event.what in ("link", "replace"))
