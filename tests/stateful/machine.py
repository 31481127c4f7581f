"""A dataset under random calls of writers, readers, loaders and the rest, against its `Model`.

One machine for the three kinds of data. Two writers at most; each call of theirs may be the one
that a process dies in, and then the files tell which of its links were made. Whatever happens,
readers see exactly what was committed, `verify` finds nothing wrong, and nothing lies about but
what the dead have left.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from guideloom_format import DatasetNotFoundError, _names
from guideloom_read import verify
from guideloom_write._clean import clean
from guideloom_write._consolidate import consolidate
from stateful import on_disk
from stateful.checks import check_reader
from stateful.doomed_files import DoomedFiles
from stateful.model import Snapshot
from stateful.training import Training
from stateful.writer_rules import APPENDS, CALLS, SLOTS, Appends, WriterRules
from write.faulty_files import Crash

CHECK_EVERY = 3


class DatasetMachine(WriterRules):
    """All rules; a subclass says for which kind of data."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[tuple[Any, Snapshot]] = []
        self.training = Training(self.kind, self.directory, self.model)
        self.fingerprints: dict[Snapshot, str] = {}
        self.checks = 0

    def teardown(self) -> None:
        try:
            for reader, _ in self.readers:
                reader.close()
            if self.checks:
                self.check_at_the_end()
        finally:
            super().teardown()

    @initialize(appends=APPENDS, consolidated=st.booleans())
    def begin(self, appends: Appends, consolidated: bool) -> None:
        self.write_and_commit(0, appends, together=True, calls=None)
        if consolidated:
            self.consolidate(None)

    # Consolidation and cleaning

    @rule(calls=CALLS)
    def consolidate(self, calls: int | None) -> None:
        model, files = self.model, DoomedFiles()
        files.arm(calls)
        newest = max(model.versions, default=0)
        now = model.now()
        new = model.versions.get(newest) != now
        self.changed = True
        try:
            done = consolidate(self.storage(), files)
        except Crash:
            files.bury()
            found = on_disk.manifest_versions(self.directory)
            assert found - set(model.versions) <= {newest + 1}
            model.versions |= dict.fromkeys(found - set(model.versions), now)
            copied = on_disk.copied_version(self.directory)
            assert copied in (model.copied, max(found, default=None))
            model.copied = copied
            return
        assert done.created == new
        assert done.version == newest + new
        assert done.length == len(now.items)
        assert done.parts == sum(parts for _, parts in now.parts)
        model.versions[done.version] = now
        model.copied = done.version
        assert self.fingerprints.setdefault(now, done.fingerprint) == done.fingerprint

    @rule(
        remove=st.booleans(),
        pins=st.none() | st.sets(st.integers(1, 4)),
        there=st.booleans(),
        calls=CALLS,
    )
    def clean(
        self, remove: bool, pins: set[int] | None, there: bool, calls: int | None = None
    ) -> None:
        """Clean, with pins of versions that are all there, or with whatever pins."""
        model, files = self.model, DoomedFiles()
        if pins is not None and there:
            pins = pins & set(model.versions)
        before = on_disk.file_names(self.directory)
        lost, old = self.to_be_cleaned(pins)
        files.arm(calls)
        self.changed = True
        gone = set[str]()
        try:
            report = clean(self.storage(), remove=remove, older_than=0, pinned=pins, files=files)
        except Crash:
            files.bury()
            gone = before - on_disk.file_names(self.directory)
            assert gone <= lost | old
            assert remove or not gone
        except ValueError:
            assert pins is not None
            assert pins - set(model.versions)
            assert before == on_disk.file_names(self.directory)
        else:
            assert pins is None or pins <= set(model.versions)
            assert (set(report.orphans), set(report.manifests)) == (lost, old)
            gone = before - on_disk.file_names(self.directory)
            assert gone == (lost | old if remove else set())
        left = on_disk.manifest_versions(self.directory)
        model.versions = {v: seen for v, seen in model.versions.items() if v in left}
        for session in self.sessions.values():
            robbed = on_disk.of_sessions(gone, {session.token})
            places = (re.match(r"data/\d+/(\d+)-", name) for name in robbed)
            session.robbed |= {int(place[1]) for place in places if place is not None}

    def to_be_cleaned(self, pins: set[int] | None) -> tuple[set[str], set[str]]:
        """What nothing refers to and no living writer has made; and versions without a pin."""
        notes = on_disk.owner_tokens(self.directory)
        living = {session.token for session in self.sessions.values()}
        lost = on_disk.unreferenced(self.directory)
        lost -= on_disk.of_sessions(lost, living & set(notes.values()))
        if pins is None:
            return lost, set()
        dropped = [version for version in sorted(self.model.versions)[:-1] if version not in pins]
        return lost, {f"manifests/{_names.manifest_name(version)}" for version in dropped}

    @rule(slot=SLOTS, appends=APPENDS)
    def clean_while_writing(self, slot: int, appends: Appends) -> None:
        """What a living writer has not committed yet stays."""
        self.write(slot, appends, together=True, calls=None)
        self.clean(remove=True, pins=None, there=True)
        self.commit(slot, None)

    # Readers

    @rule(data=st.data(), everything=st.booleans())
    @precondition(lambda self: self.model.shards)
    def read(self, data: st.DataObject, everything: bool) -> None:
        with self.storage().sync_reader() as reader:
            assert reader.version == self.model.shown_version()
            self.check(reader, self.model.now(), data)
        if everything:
            report = verify(self.directory)
            assert report.clean, report

    def check(self, reader: Any, seen: Snapshot, data: st.DataObject) -> None:
        check_reader(self.kind, reader, seen, data)
        fingerprint = reader.fingerprint
        assert self.fingerprints.setdefault(seen, fingerprint) == fingerprint

    @rule(data=st.data(), version=st.integers(1, 6))
    @precondition(lambda self: self.model.copied)
    def read_version(self, data: st.DataObject, version: int) -> None:
        reader = self.storage(version).sync_reader()
        if version not in self.model.versions:
            with pytest.raises(DatasetNotFoundError, match=f"no manifest version {version}"):
                reader.open()
            return
        with reader:
            assert reader.version == version
            self.check(reader, self.model.versions[version], data)
        with pytest.raises(ValueError, match="pinned to manifest version"):
            self.storage(version).sync_writer()

    @rule()
    @precondition(lambda self: self.model.shards)
    def open_reader(self) -> None:
        self.readers.append((self.storage().sync_reader().open(), self.model.now()))
        if len(self.readers) > 3:
            self.readers.pop(0)[0].close()

    @rule(data=st.data())
    @precondition(lambda self: self.readers)
    def read_on(self, data: st.DataObject) -> None:
        """A reader shows what was there when it was opened."""
        reader, seen = data.draw(st.sampled_from(self.readers), label="reader")
        self.check(reader, seen, data)

    # Loaders

    @precondition(lambda self: self.model.shards)
    @rule(seed=st.none() | st.integers(0, 3), steps=st.integers(0, 6), batch=st.integers(1, 3))
    def train(self, seed: int | None, steps: int, batch: int) -> None:
        self.training.begin(seed, steps, batch)

    @rule(appends=APPENDS, steps=st.integers(0, 6), pinned=st.booleans())
    def train_while_it_grows(self, appends: Appends, steps: int, pinned: bool) -> None:
        """A run goes on after its dataset has grown, if it was consolidated before."""
        if pinned:
            self.consolidate(None)
        self.training.begin(1, steps, 2)
        self.write_and_commit(0, appends, together=True, calls=None)
        if self.training.saved:
            self.training.resume(self.training.saved[-1], 3, 1)

    @rule(data=st.data(), steps=st.integers(0, 6), batch=st.integers(1, 3))
    @precondition(lambda self: self.training.saved)
    def resume(self, data: st.DataObject, steps: int, batch: int) -> None:
        saved = data.draw(st.sampled_from(self.training.saved), label="state")
        self.training.resume(saved, steps, batch)

    # What always holds

    @invariant()
    def nothing_is_wrong(self) -> None:
        if not self.changed:
            return
        self.changed = False
        lost = on_disk.unreferenced(self.directory)
        assert on_disk.manifest_versions(self.directory) == set(self.model.versions)
        living = {session.token: session for session in self.sessions.values()}
        notes = on_disk.owner_tokens(self.directory)
        held = {k: living[token] for k, token in notes.items() if token in living}
        assert held == self.model.notes
        self.checks += 1
        if self.checks % CHECK_EVERY == 0:
            report = verify(self.directory, level="structure")
            assert report.clean, report
            assert report.parts == sum(len(parts) for parts in self.model.shards.values())
            assert set(report.orphans or ()) == lost

    def check_at_the_end(self) -> None:
        """All that is there, and all versions."""
        report = verify(self.directory)
        assert report.clean, report
        versions: list[int | None] = [None, *self.model.versions]
        for version in versions:
            seen = self.model.now() if version is None else self.model.versions[version]
            with self.storage(version).sync_reader() as reader:
                assert self.kind.read(reader, 0, len(reader)) == list(seen.items)
                self.kind.check_spans(reader, seen.spans)
