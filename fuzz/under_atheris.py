"""Fuzzes one target in this process with atheris, which ends the process when it is done.

Started by `campaign.py`; the arguments are the name of a target and those of libFuzzer.
"""

from __future__ import annotations

import importlib
import random
import shlex
import sys
from typing import Any

INSTRUMENTED = ["guideloom", "guideloom_format", "guideloom_read", "guideloom_torch", "targets"]


def main() -> None:
    atheris: Any = importlib.import_module("atheris")
    name = sys.argv[1]
    # libFuzzer starts itself again to merge a corpus, by a shell: the first argument is how.
    arguments = [shlex.join([sys.executable, *sys.argv[:2]]), *sys.argv[2:]]
    with atheris.instrument_imports(include=INSTRUMENTED):
        from targets import load
        from targets.base import limited_memory

        target = load(name)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        def raw(some: bytes) -> bytes:
            changed: bytes = atheris.Mutate(some, max_size)
            return changed

        return target.mutate(data, random.Random(seed), raw)[:max_size]

    atheris.Setup(arguments, target.check, custom_mutator=mutate)
    with limited_memory():
        atheris.Fuzz()


if __name__ == "__main__":
    main()
