"""Names of jobs: they become file names."""

from __future__ import annotations

import pytest

from guideloom_write._job import check_job_name


@pytest.mark.parametrize(
    "name", ["", ".", ".a", "a/b", "../a", "a b", "a\n", "é", "a\0", "x" * 201, "a\\b", "a:b"]
)
def test_names_that_no_job_may_have(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected 1 to 200 of the characters A-Z"):
        check_job_name(name)


@pytest.mark.parametrize("name", [None, 3, b"a"])
def test_a_name_is_a_string(name: object) -> None:
    with pytest.raises(TypeError, match="expected a string that names the job"):
        check_job_name(name)


@pytest.mark.parametrize("name", ["a", "-", "_", "0", "a..b", "a.json", "x" * 200])
def test_names_that_a_job_may_have(name: str) -> None:
    assert check_job_name(name) == name
