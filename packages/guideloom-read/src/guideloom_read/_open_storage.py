"""`guideloom.open`: the storage of a dataset, as its header describes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from guideloom_format import DocumentStorage, IOReader, StreamStorage, StreamWithMetaStorage
from guideloom_format._built_in import built_in_format, check_same_format
from guideloom_format._names import HEADER
from guideloom_format._storage import STORAGE_OF_KIND, check_backend
from guideloom_read._contents import read_header
from guideloom_read.io import PosixPreadIO


def open(  # noqa: A001  # it is called as guideloom.open
    directory: str | os.PathLike[str],
    storage_format: Any = None,
    read_interface: IOReader | None = None,
    *,
    version: int | None = None,
) -> StreamStorage | StreamWithMetaStorage | DocumentStorage:
    """The storage of an existing dataset: of its kind, with its built-in format.

    Args:
        directory: of the dataset.
        storage_format: the format, if it is not built in, or if it is `DocumentPickleFormat`,
            which runs code and is never chosen by a file.
        read_interface: the I/O backend for readers; `PosixPreadIO()` when left out.
        version: of the manifest that readers show; all that is committed when left out.

    Raises:
        DatasetNotFoundError: there is no dataset.
        MismatchError: the format must be passed, or the one passed does not fit the dataset.
        DatasetError: the header is damaged or too new.
        MissingPackageError: the format needs ml_dtypes, which is not installed.
    """
    path = os.fspath(directory)
    if not isinstance(path, str):
        raise TypeError(f"directory is {path!r}; expected a str or a pathlib.Path")
    check_backend(read_interface)
    path = str(Path(path))
    session = (read_interface or PosixPreadIO()).open(path)
    try:
        header = read_header(session, path)
    finally:
        session.close()
    if storage_format is None:
        storage_format = built_in_format(header, f"{path}/{HEADER}, storage_format")
    storage: Any = STORAGE_OF_KIND[header.kind](
        path, storage_format, read_interface, version=version
    )
    header.check_opened_as(storage.kind, storage.element_type, path)
    check_same_format(header, storage_format, path)
    return storage  # type: ignore[no-any-return]
