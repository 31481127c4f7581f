"""The large campaign: the power fails, for data of each kind, until enough states were looked at.

In the folder `tests`::

    python -m write.power_campaign [--states N] [--seed N] [KIND ...]

It prints the figures of each run, and every bad state with what it takes to see it again.
"""

from __future__ import annotations

import argparse
import logging

from write.power_loss import SEED, Campaign, Tally, memory_folder
from write.power_scenarios import KINDS, scenarios

SAMPLES = {"stream": 200, "document": 70, "stream-with-meta": 40}
"""At each point; enough for all states in one round, so that all of them differ in kind."""


def look_at(kind: str, states: int, seed: int) -> Tally:
    """Campaigns with one seed after the other, until so many states were looked at."""
    total = Tally()
    while total.states < states and not total.bad:
        with memory_folder() as folder:
            campaign = Campaign(
                KINDS[kind], folder, seed=seed, samples=SAMPLES[kind], thorough=True
            )
            for scenario in scenarios(kind):
                for name, tally in (
                    (scenario.name, campaign.run(scenario)),
                    (f"{scenario.name}, twice", campaign.run_twice(scenario, times=5)),
                ):
                    print(f"{kind}, seed {seed}, {name}: {tally}", *tally.bad, sep="\n", flush=True)
                    total.add(tally)
        seed += 1
    return total


def main() -> int:
    """Run it; 1 if a state was bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--states", type=int, default=50_000, help="that differ, for each kind")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    logging.getLogger("guideloom_write").setLevel(logging.ERROR)
    bad = 0
    for kind in given.kinds or KINDS:
        total = look_at(kind, given.states, given.seed)
        print(f"{kind}: {total}", flush=True)
        bad += len(total.bad)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
