"""The built-in storage formats: what a header says of them, and the format for what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guideloom_format._bit_views import with_extensions
from guideloom_format._document_formats import (
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
)
from guideloom_format._document_pickle import DocumentPickleFormat
from guideloom_format._errors import DamagedFileError, MismatchError
from guideloom_format._header import Header
from guideloom_format._integers import shown
from guideloom_format._parts import DOCUMENT, STREAM, STREAM_WITH_META
from guideloom_format._stream_numpy import StreamNumpyFormat
from guideloom_format._stream_spans import StreamSpansFormat

# Without DocumentPickleFormat: a file can never ask for it.
_SAFE_DOCUMENT_FORMATS = {
    form.name: form for form in (DocumentBytesFormat, DocumentNumpyFormat, DocumentJSONFormat)
}
_WITH_PARAMETERS = (
    StreamNumpyFormat,
    DocumentBytesFormat,
    DocumentNumpyFormat,
    DocumentJSONFormat,
    DocumentPickleFormat,
)


def describe(storage_format: Any) -> dict[str, Any]:
    """What a header says of a format: a built-in one by name, another by its class."""
    form = type(storage_format)
    if form is StreamSpansFormat:
        parameters = {"payload_format": describe(storage_format.payload_format)}
        if storage_format.stream_format is not None:
            parameters |= storage_format.stream_format.parameters()
        return {"name": form.name, "parameters": parameters}
    if form in _WITH_PARAMETERS:
        return {"name": form.name, "parameters": storage_format.parameters()}
    return {"class": f"{form.__module__}.{form.__qualname__}"}


def built_in_format(header: Header, where: str) -> Any:
    """The storage format that a header names.

    Raises:
        MismatchError: a custom format, or one that runs code, which must be passed.
        DamagedFileError: a description that cannot be.
        MissingPackageError, UnsupportedFormatError: it needs types of ml_dtypes.
    """
    try:
        return _named_format(header, where)
    except TypeError as error:
        raise DamagedFileError(
            f"{where}: {error}. The header contradicts itself: the file is damaged or was not "
            "written by GuideLoom"
        ) from error


def _named_format(header: Header, where: str) -> Any:
    description = header.storage_format
    name, parameters = description.get("name"), _parameters(description)
    if header.kind == STREAM and name == StreamNumpyFormat.name:
        return StreamNumpyFormat.from_header(parameters, header.element_type, where)
    if header.kind == DOCUMENT:
        return _document_format(description, where)
    if header.kind == STREAM_WITH_META and name == StreamSpansFormat.name:
        payload = parameters.get("payload_format")
        payload_format = _document_format(payload if isinstance(payload, dict) else {}, where)
        dtype = with_extensions(header.element_type, parameters.get("views", {}), where)
        return StreamSpansFormat(dtype, payload_format)
    raise _not_built_in(description, where)


def check_same_format(header: Header, storage_format: Any, directory: str) -> None:
    """Raises `MismatchError` if both are built in and differ in what they say of the data."""
    difference = _difference(header.storage_format, describe(storage_format))
    if difference is not None:
        raise MismatchError(
            f"{directory} was written with the storage format {difference[0]}, it was opened with "
            f"{difference[1]}; open it with the format that it was written with"
        )


def _difference(written: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, str] | None:
    """In what two built-in formats differ, as it is said of each."""
    if "name" not in written or "name" not in given:
        return None  # a custom format may read what it likes
    name = written["name"]
    if name != given["name"]:
        return shown(name), shown(given["name"])
    theirs, ours = _parameters(written), _parameters(given)
    if theirs.get("dtype") != ours.get("dtype"):
        return f"{name} of {shown(theirs.get('dtype'))}", f"{name} of {shown(ours.get('dtype'))}"
    their_views, our_views = theirs.get("views"), ours.get("views", {})
    for field, view in their_views.items() if isinstance(their_views, dict) else ():
        if our_views.get(field, view) != view:  # without a view one has the bits
            return (
                f"{name} with {shown(view)} in field {field!r}",
                f"{name} with {shown(our_views[field])} in field {field!r}",
            )
    payload = theirs.get("payload_format")
    if isinstance(payload, dict):
        inner = _difference(payload, ours.get("payload_format", {}))
        if inner is not None:
            return f"{name} of payloads {inner[0]}", f"{name} of payloads {inner[1]}"
    return None


def _document_format(description: Mapping[str, Any], where: str) -> Any:
    name = description.get("name")
    if not isinstance(name, str) or name not in _SAFE_DOCUMENT_FORMATS:
        raise _not_built_in(description, where)
    return _SAFE_DOCUMENT_FORMATS[name].from_header(_parameters(description), where)


def _parameters(description: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = description.get("parameters", {})
    return parameters if isinstance(parameters, dict) else {}


def _not_built_in(description: Mapping[str, Any], where: str) -> MismatchError:
    if description.get("name") == DocumentPickleFormat.name:
        return MismatchError(
            f"{where}: the dataset holds pickles, and reading a pickle runs the code that the file "
            "asks for, so this format is never chosen by a file. If you trust whoever wrote the "
            "data, pass storage_format=DocumentPickleFormat() (for spans as payload_format of a "
            "StreamSpansFormat)"
        )
    return MismatchError(
        f"{where}: the dataset was written with the storage format {_shown(description)}, which is "
        "not one that is built in for data of its kind; pass it with storage_format= (that "
        "of payloads within a StreamSpansFormat)"
    )


def _shown(description: Mapping[str, Any]) -> str:
    return shown(description.get("name", description.get("class", dict(description))))
