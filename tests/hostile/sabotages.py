"""The packages with one defence less, to see that the vectors find it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from typing import Any

from format.independent_json import SEAL_SIZE, sealed
from guideloom_format import (
    DamagedFileError,
    DocumentPickleFormat,
    _built_in,
    _names,
    _sealed,
)
from guideloom_read.io import _local
from guideloom_write import _clean


def names_are_not_checked() -> None:
    """A stem may be anything."""
    _put_instead(_names.check_relative, lambda name, where: name)  # noqa: ARG005


def links_are_followed() -> None:
    """A symbolic link in the place of a file."""
    _local._FLAGS &= ~os.O_NOFOLLOW


def special_files_are_opened() -> None:
    """A FIFO in the place of a file."""
    stat.S_ISREG = lambda mode: not stat.S_ISDIR(mode)


def sizes_are_not_compared() -> None:
    """A file may have another size than the one that was committed."""
    real = _local.open_regular
    _put_instead(real, lambda path, size=None: real(path))  # noqa: ARG005


def seals_are_not_checked() -> None:
    """Whatever stands before the last 25 bytes is believed."""
    real = _sealed.unseal
    _put_instead(real, lambda data, where: real(sealed(data[:-SEAL_SIZE]), where))


def pickles_are_chosen_by_files() -> None:
    """The header says that documents are pickles."""
    form: Any = DocumentPickleFormat
    form.from_header = classmethod(lambda cls, parameters, where: cls())  # noqa: ARG005
    _built_in._SAFE_DOCUMENT_FORMATS[form.name] = form


def references_are_not_looked_at() -> None:
    """What a record names may be removed."""
    cleaner: Any = _clean._Cleaner
    cleaner.referenced = lambda self: set()  # noqa: ARG005
    cleaner.published = lambda self, found: False  # noqa: ARG005


def errors_of_the_parser_come_out() -> None:
    """Those of Python, not the library's."""
    module: Any = _sealed
    assert module.DamagedFileError is DamagedFileError
    module.DamagedFileError = RecursionError


def _put_instead(function: Callable[..., Any], other: Callable[..., Any]) -> None:
    """Wherever the packages know a function by its name."""
    name = function.__name__
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("guideloom") and getattr(module, name, None) is function:
            setattr(module, name, other)


SABOTAGES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        names_are_not_checked,
        links_are_followed,
        special_files_are_opened,
        sizes_are_not_compared,
        seals_are_not_checked,
        pickles_are_chosen_by_files,
        references_are_not_looked_at,
        errors_of_the_parser_come_out,
    )
}
