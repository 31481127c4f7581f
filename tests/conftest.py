"""The report says how often loaders were resumed; `tests/torch/conftest.py` counts it."""

from __future__ import annotations

from typing import Any

import pytest

from resumes import AT_LEAST, counted


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """What a process of pytest-xdist has counted."""
    del error
    counted.number += getattr(node, "workeroutput", {}).get("resumes", 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand on the number; or fail if all tests were run and it is too small."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["resumes"] = counted.number
    elif _too_few(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line of the report."""
    number = counted.number
    if number:
        terminalreporter.write_line(
            f"resumes: {number:,} times a loader of the test processes went on from a state"
        )
    if _too_few(terminalreporter.config):
        terminalreporter.write_line(f"resumes: expected at least {AT_LEAST:,}", red=True)


def _too_few(config: pytest.Config) -> bool:
    """After a run of all tests."""
    option = config.option
    chosen = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    some = (
        option.keyword
        or option.deselect
        or option.markexpr != "not slow"
        or getattr(option, "lf", False)
    )
    return counted.number < AT_LEAST and not (chosen or some or option.collectonly)
