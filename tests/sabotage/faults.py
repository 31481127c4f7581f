"""The deliberate faults: each is one edit of the packages that at least one test must notice.

They follow the list that such test suites are judged by. Its "accepts an answer 200 to a range
request" needs a remote backend, which there is none of yet; "takes another's manifest version for
its own" stands in its place.
"""

from __future__ import annotations

from dataclasses import dataclass

WRITE = "guideloom-write/src/guideloom_write"
READ = "guideloom-read/src/guideloom_read"
FORMAT = "guideloom-format/src/guideloom_format"
TORCH = "guideloom-torch/src/guideloom_torch"


@dataclass(frozen=True)
class Fault:
    """One edit.

    Attributes:
        name: what goes wrong.
        file: which one is edited, below `packages/`.
        right: what stands there, exactly once.
        wrong: what is put in its place.
        tests: test modules, or tests, of which at least one must fail.
    """

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


FAULTS = (
    Fault(
        "no fsync of files",
        f"{WRITE}/_checked_file.py",
        "            self._files.sync(self._descriptor)\n",
        "",
        ("tests/write/test_order_of_steps.py",),
    ),
    Fault(
        "no fsync of folders",
        f"{WRITE}/_part.py",
        "        self._files.sync_folder(commits)\n",
        "",
        ("tests/write/test_order_of_steps.py",),
    ),
    Fault(
        "the record before its data is durable",
        f"{WRITE}/_part.py",
        "            facts |= file.finish()\n        part = ",
        "            sync, file._files.sync = file._files.sync, lambda _: None\n"
        "            facts |= file.finish()\n            file._files.sync = sync\n        part = ",
        ("tests/write/test_order_of_steps.py",),
    ),
    Fault(
        "no loop around write",
        f"{WRITE}/_files.py",
        "            view = view[written:]\n",
        "            break\n",
        ("tests/write/test_failed_steps.py",),
    ),
    Fault(
        "no check of a file's length",
        f"{READ}/io/_local.py",
        "        if size is not None and found.st_size != size:\n",
        "        if False:\n",
        ("tests/read/test_backends.py",),
    ),
    Fault(
        "checksums not compared",
        f"{READ}/_verify_data.py",
        "        if found.tobytes() != stored.tobytes():\n",
        "        if False:\n",
        ("tests/read/test_verify.py",),
    ),
    Fault(
        "checksums over the payload alone",
        f"{FORMAT}/_checksum.py",
        '        return crc32c(text.encode("ascii"))\n',
        '        return crc32c(text.encode("ascii")[:0])\n',
        ("tests/format/test_checksum.py", "tests/read/test_verify.py"),
    ),
    Fault(
        "takes another's manifest version for its own",
        f"{WRITE}/_consolidate.py",
        "        if publish_once(files, path, data, token, MAX_MANIFEST_BYTES) == data:\n",
        "        if publish_once(files, path, data, token, MAX_MANIFEST_BYTES):\n",
        ("tests/write/test_consolidate.py",),
    ),
    Fault(
        "one temporary name for all",
        f"{FORMAT}/_names.py",
        '    return f"{name}.{token}{TEMPORARY}"\n',
        '    return f"{name}.{token[:0]}{TEMPORARY}"\n',
        ("tests/write/test_crash_points.py", "tests/write/test_writer_processes.py"),
    ),
    Fault(
        "an error of fsync swallowed",
        f"{WRITE}/_checked_file.py",
        "            self._files.sync(self._descriptor)\n",
        "            try:\n                self._files.sync(self._descriptor)\n"
        "            except OSError:\n                pass\n",
        ("tests/write/test_failed_steps.py", "tests/write/test_faulty_io.py"),
    ),
    Fault(
        "the state counts what was prefetched",
        f"{TORCH}/_epoch.py",
        "        done = min(self._done + self._batch, self._stop)\n",
        "        ahead = 1 + sum(self.depth())\n"
        "        done = min(self._done + ahead * self._batch, self._stop)\n",
        ("tests/torch/test_resume.py",),
    ),
    Fault(
        "a negative index beyond the beginning",
        f"{READ}/_sample_sequence.py",
        "            if not -count <= number < count:\n",
        "            if not number < count:\n",
        ("tests/read/test_stream_dataset.py", "tests/read/test_documents.py"),
    ),
)
