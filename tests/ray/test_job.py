"""A job is decided once and published whole; what stands in its way is an error that says so."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guideloom_format import (
    DamagedFileError,
    ShardConflictError,
    WriteError,
)
from guideloom_format._sealed import seal, unseal
from guideloom_read import verify
from guideloom_write._clean import clean
from guideloom_write._job import (
    RunningNote,
    decided_records,
    finish_job,
    job_path,
    read_job,
    running_since,
)
from write.faulty_files import CrashAt, Watched
from write.known_content import KNOWN_ELEMENTS, Known

from .job_cases import (
    AFTER,
    BEFORE,
    JOB,
    KINDS,
    SHARDS,
    begin,
    check_complete,
    crash,
    header_of,
    is_decided,
    prepare,
    run,
    storage_of,
    undisturbed,
)


@pytest.fixture(params=list(KINDS))
def known(request: pytest.FixtureRequest) -> Known[Any]:
    return KINDS[request.param]


def set_time(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))


def test_a_complete_job_is_left_as_it_is(known: Known[Any], tmp_path: Path) -> None:
    directory = tmp_path / "set"
    undisturbed(known, directory)
    present = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    files = Watched()
    run(known, directory, files)
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == present
    assert files.created == files.linked == []


def test_parts_that_only_the_manifest_has_are_published(known: Known[Any], tmp_path: Path) -> None:
    """Commit records may be removed once a manifest has them; the job is complete all the same."""
    directory = tmp_path / "set"
    undisturbed(known, directory)
    for path in (directory / "commits").glob("*.json"):
        path.unlink()
    run(known, directory, Watched())
    assert not list((directory / "commits").glob("*.json"))


def test_a_place_that_is_taken_before_the_decision(known: Known[Any], tmp_path: Path) -> None:
    """Nothing of the job is visible, and the same command writes it behind what is there."""
    directory = tmp_path / "set"
    begin(known, directory)
    files = Watched()
    records = prepare(known, directory, files)
    known.play(directory, Watched(), [(8, 3)])
    with pytest.raises(ShardConflictError, match=r"shard 8, part 0 .* Nothing of the job was pub"):
        finish_job(files, str(directory), header_of(directory, files), JOB, records)
    assert not is_decided(directory)
    assert known.visible(directory) == {**BEFORE, 8: 3}


def test_a_place_that_only_the_manifest_shows_as_taken(tmp_path: Path) -> None:
    known = KNOWN_ELEMENTS
    directory = tmp_path / "set"
    begin(known, directory)
    files = Watched()
    records = prepare(known, directory, files)
    known.play(directory, Watched(), [(8, 3)])
    storage_of(known, directory).consolidate()
    (directory / "commits" / "0000008-0000.json").unlink()
    with pytest.raises(ShardConflictError, match="the manifest has it with the token"):
        finish_job(files, str(directory), header_of(directory, files), JOB, records)


class TakesAPlace(Watched):
    """Another writer commits to shard 8 right after the job is decided."""

    def __init__(self, known: Known[Any], directory: Path) -> None:
        super().__init__()
        self._known = known
        self._directory = directory

    def after(self, kind: str, path: str) -> None:
        if kind == "link" and path == job_path(str(self._directory), JOB):
            self._known.play(self._directory, Watched(), [(8, 3)])


def test_a_place_that_is_taken_after_the_decision(known: Known[Any], tmp_path: Path) -> None:
    """The other parts are published, and every run says what is lost."""
    directory = tmp_path / "set"
    begin(known, directory)
    for files in (TakesAPlace(known, directory), Watched()):
        with pytest.raises(ShardConflictError, match=r"1 of the 4 parts .* shard 8, part 0: host "):
            run(known, directory, files)
        assert known.visible(directory) == {**AFTER, 8: 3}


def test_two_runs_of_one_job(
    known: Known[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first decision counts; the other run publishes that, too, and says so."""
    directory = tmp_path / "set"
    begin(known, directory)
    files = Watched()
    header = header_of(directory, files)
    first, second = prepare(known, directory, files), prepare(known, directory, files)
    with caplog.at_level(logging.WARNING, "guideloom_write"):
        one = finish_job(files, str(directory), header, JOB, first)
        assert caplog.messages == []
        two = finish_job(files, str(directory), header, JOB, second)
    assert one == two
    assert sorted(one.records) == sorted(first)
    assert known.visible(directory) == AFTER


class OtherRun(Watched):
    """Another run of the job does all of it at the n-th call of this one."""

    def __init__(self, directory: Path, records: list[bytes], n: int) -> None:
        super().__init__()
        self._directory = directory
        self._records = records
        self._n = n

    def before(self, kind: str, path: str) -> None:
        del kind, path
        if len(self.calls) == self._n:
            files = Watched()
            header = header_of(self._directory, files)
            finish_job(files, str(self._directory), header, JOB, self._records)


def test_another_run_at_every_call_of_this_one(tmp_path: Path) -> None:
    """All parts are of one run, whichever it is."""
    known = KNOWN_ELEMENTS
    begin(known, tmp_path / "begin")
    counts = []
    for n in range(1, 10**6):
        directory = tmp_path / str(n)
        shutil.copytree(tmp_path / "begin", directory)
        mine, other = (prepare(known, directory, Watched()) for _ in range(2))
        files = OtherRun(directory, other, n)
        job = finish_job(files, str(directory), header_of(directory, Watched()), JOB, mine)
        assert sorted(job.records) in (sorted(mine), sorted(other))
        counts.append(sorted(job.records) == sorted(mine))
        assert known.visible(directory) == AFTER
        shutil.rmtree(directory)
        if len(files.calls) < n:
            break
    assert True in counts
    assert False in counts
    assert counts == sorted(counts), "who decides first wins"


def test_a_file_of_a_part_is_gone(tmp_path: Path) -> None:
    """A task wrote to another file system, or somebody cleaned: nothing is decided."""
    known = KNOWN_ELEMENTS
    directory = tmp_path / "set"
    begin(known, directory)
    files = Watched()
    records = prepare(known, directory, files)
    stem = json.loads(records[1])["stem"]
    path = directory / "data" / f"{stem}.elements"
    content = path.read_bytes()
    header = header_of(directory, files)
    path.unlink()
    with pytest.raises(WriteError, match=r"\.elements is not there; expected the 270 bytes that"):
        finish_job(files, str(directory), header, JOB, records)
    path.write_bytes(content[:-1])
    with pytest.raises(WriteError, match=r"\.elements has 269 bytes; expected the 270 bytes"):
        finish_job(files, str(directory), header, JOB, records)
    assert not is_decided(directory)
    path.write_bytes(content)
    finish_job(files, str(directory), header, JOB, records)
    assert known.visible(directory) == AFTER


def test_two_parts_for_one_place(tmp_path: Path) -> None:
    known = KNOWN_ELEMENTS
    directory = tmp_path / "set"
    begin(known, directory)
    files = Watched()
    records = prepare(known, directory, files) + prepare(known, directory, files, {7: 3})
    with pytest.raises(WriteError, match="two parts for shard 7, part 0; nothing was published"):
        finish_job(files, str(directory), header_of(directory, files), JOB, records)
    assert not is_decided(directory)


def test_a_job_without_parts(tmp_path: Path) -> None:
    directory = tmp_path / "set"
    begin(KNOWN_ELEMENTS, directory)
    files = Watched()
    header = header_of(directory, files)
    assert finish_job(files, str(directory), header, JOB, []).records == ()
    assert is_decided(directory)
    assert KNOWN_ELEMENTS.visible(directory) == BEFORE


def test_jobs_of_one_dataset_do_not_meet(tmp_path: Path) -> None:
    known = KNOWN_ELEMENTS
    directory = tmp_path / "set"
    begin(known, directory)
    files = Watched()
    header = header_of(directory, files)
    one, two = (prepare(known, directory, files, {shard: 9}) for shard in (7, 8))
    finish_job(files, str(directory), header, "one", one)
    finish_job(files, str(directory), header, "one.json", two)
    assert known.visible(directory) == {**BEFORE, 7: 9, 8: 9}
    places = [record.part.shard for record in decided_records(files, str(directory), header)]
    assert sorted(places) == [7, 8]


def test_clean_keeps_what_a_decided_job_will_publish(known: Known[Any], tmp_path: Path) -> None:
    directory = tmp_path / "set"
    log = undisturbed(known, tmp_path / "undisturbed")
    begin(known, directory)
    job = job_path(str(tmp_path / "undisturbed"), JOB)
    decided = next(n for n, call in enumerate(log.calls, start=1) if call == ("link", job))
    assert crash(known, directory, CrashAt(decided + 2))
    assert is_decided(directory)
    assert known.visible(directory) == BEFORE
    report = verify(directory, level="structure")
    assert (report.faults, report.orphans) == ([], [])
    clean(storage_of(known, directory), remove=True, older_than=0.0, files=Watched())
    run(known, directory, Watched())
    check_complete(known, directory)


def test_verify_names_a_damaged_decision(tmp_path: Path) -> None:
    known = KNOWN_ELEMENTS
    directory = tmp_path / "set"
    begin(known, directory)
    run(known, directory, Watched())
    path = Path(job_path(str(directory), JOB))
    intact = path.read_bytes()
    for damaged in (b"", intact[:-1], intact.replace(b"books", b"looks")):
        path.write_bytes(damaged)
        (fault,) = verify(directory).faults
        assert (fault.file, fault.start, fault.stop) == (f"jobs/{JOB}.json", 0, len(damaged))
    job = json.loads(intact) | {"records": ["x"]}
    path.write_bytes(seal({name: value for name, value in job.items() if name != "crc32c"}))
    (fault,) = verify(directory).faults
    assert f"a record of job '{JOB}'" in fault.problem
    path.write_bytes(intact)
    assert verify(directory)


def test_clean_keeps_what_a_running_job_has_written(tmp_path: Path) -> None:
    known = KNOWN_ELEMENTS
    directory = tmp_path / "set"
    begin(known, directory)
    prepare(known, directory, Watched(), {9: 4})  # of a dead run, before
    for path in (directory / "data").rglob("0000009*"):
        set_time(path, path.stat().st_mtime - 1000)
    files = Watched()
    note = RunningNote(files, str(directory), JOB)
    note.begin()
    records = prepare(known, directory, files)
    report = clean(storage_of(known, directory), remove=True, older_than=0.0, files=Watched())
    assert {name.split("-")[0] for name in report.orphans} == {"data/0000/0000009"}
    finish_job(files, str(directory), header_of(directory, files), JOB, records)
    note.end()
    check_complete(known, directory)


def test_the_note_of_a_running_job(tmp_path: Path) -> None:
    directory = tmp_path / "set"
    begin(KNOWN_ELEMENTS, directory)
    files = Watched()
    note = RunningNote(files, str(directory), JOB)
    assert running_since(files, str(directory)) == []
    note.sign_of_life()  # of a job whose note is gone: nothing
    note.end()
    note.begin()
    (path,) = (directory / "jobs").iterdir()
    set_time(path, 1e9)
    [(name, touched, began)] = running_since(files, str(directory))
    assert (name, touched) == (JOB, 1e9)
    note.sign_of_life()
    [(_, touched, same)] = running_since(files, str(directory))
    assert began == same <= touched < began + 100
    path.write_bytes(b"torn")
    [(_, _, unknown)] = running_since(files, str(directory))
    assert unknown == 0.0
    note.begin()
    assert running_since(files, str(directory))[0][2] >= began
    note.end()
    assert list((directory / "jobs").iterdir()) == []


def _changes(data: bytes) -> Iterator[tuple[str, bytes]]:
    members = unseal(data, "job")
    yield "empty", b""
    yield "cut", data[:-1]
    yield "a bit", data[:100] + bytes([data[100] ^ 1]) + data[101:]
    yield "another dataset", seal({**members, "dataset_id": "0" * 32})
    yield "another job", seal({**members, "job": "other"})
    yield "another type", seal({**members, "type": "commit"})
    yield "no list", seal({**members, "records": "x"})
    yield "numbers", seal({**members, "records": [1]})
    yield "no record", seal({**members, "records": ["{}"]})
    yield "not ASCII", seal({**members, "records": ["\ud800é"]})
    records = [json.loads(record) for record in members["records"]]
    for record in records:
        del record["crc32c"]
    for name, value in {
        "stem": "../../etc/passwd",
        "shard": -1,
        "part": 10**9,
        "token": "x",
        "length": 1 << 63,
        "dataset_id": "0" * 32,
    }.items():
        bad = seal({**records[0], name: value}).decode()
        yield f"record with {name} {value}", seal({**members, "records": [bad]})


def test_a_damaged_or_hostile_decision(tmp_path: Path) -> None:
    """Nothing is published of it, and nothing is cleaned."""
    known = KNOWN_ELEMENTS
    directory = tmp_path / "set"
    begin(known, directory)
    run(known, directory, Watched(), "good")
    (directory / "commits" / "0000007-0000.json").unlink()
    path = Path(job_path(str(directory), "good"))
    good = path.read_bytes()
    files = Watched()
    header = header_of(directory, files)
    tried = 0
    for what, data in _changes(good):
        path.write_bytes(data)
        with pytest.raises(DamagedFileError):
            finish_job(files, str(directory), header, "good", [])
        with pytest.raises(DamagedFileError):
            list(decided_records(files, str(directory), header))
        with pytest.raises(DamagedFileError):
            clean(storage_of(known, directory), remove=True, older_than=0.0, files=files)
        tried += 1
        assert what
    assert tried >= 16
    path.write_bytes(good)
    assert read_job(files, str(directory), header, "good") is not None
    assert len(SHARDS) == len(list(decided_records(files, str(directory), header)))
