"""The compatibility policy, in code: which datasets this release opens.

A reader opens every dataset of its major version whose `required_features` it knows. It ignores
`optional_features` and members that it does not know. The version is looked at before anything
else in the header, so that a newer layout gives this error and not a strange one.
"""

from __future__ import annotations

import re

from guideloom_format._errors import UnsupportedFormatError
from guideloom_format._integers import shown
from guideloom_format._members import Members

MAJOR = 1
MINOR = 0
VERSION = f"{MAJOR}.{MINOR}"
KNOWN_FEATURES: frozenset[str] = frozenset()

_VERSION = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})", re.ASCII)


def check_version(members: Members) -> str:
    """The header's version.

    Raises:
        UnsupportedFormatError: another major version.
        DamagedFileError: not a version.
    """
    text = members.text("version")
    match = _VERSION.fullmatch(text)
    if match is None:
        raise members.wrong("version", text, "MAJOR.MINOR")
    if int(match[1]) != MAJOR:
        raise UnsupportedFormatError(
            f"{members.where}: the dataset has format version {text}; this release of "
            f"guideloom-format reads version {MAJOR}.x. Install a guideloom-format release that "
            f"reads version {match[1]}.x"
        )
    return text


def check_features(members: Members) -> tuple[str, ...]:
    """The header's required features.

    Raises:
        UnsupportedFormatError: one of them is unknown here.
    """
    required = members.strings("required_features")
    unknown = sorted(set(required) - KNOWN_FEATURES)
    if unknown:
        known = ", ".join(sorted(KNOWN_FEATURES)) or "none"
        raise UnsupportedFormatError(
            f"{members.where}: the dataset requires {', '.join(map(repr, unknown))[:200]}, "
            f"which this release of guideloom-format does not know (it knows: {known}). It was "
            f"written by {shown(members.values.get('written_by', 'an unknown program'))}: install "
            "a guideloom-format release at least as new"
        )
    return required
