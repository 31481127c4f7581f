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
from guideloom_format._errors import MismatchError
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
    description = header.storage_format
    name, parameters = description.get("name"), _parameters(description)
    if header.kind == STREAM and name == StreamNumpyFormat.name:
        return StreamNumpyFormat.from_header(parameters, header.element_type, where)
    if header.kind == DOCUMENT:
        return _document_format(description, where)
    if header.kind == STREAM_WITH_META and name == StreamSpansFormat.name:
        payload = parameters.get("payload_format")
        payload_format = _document_format(payload if isinstance(payload, dict) else {}, where)
        views = parameters.get("views", {})
        dtype = with_extensions(
            header.element_type, views if isinstance(views, dict) else {}, where
        )
        return StreamSpansFormat(dtype, payload_format)
    raise _not_built_in(description, where)


def check_same_format(header: Header, storage_format: Any, directory: str) -> None:
    """Raises `MismatchError` if both are built in and differ in what they say of the data."""
    given = describe(storage_format)
    if not _agree(header.storage_format, given):
        raise MismatchError(
            f"{directory} was written with the storage format {_shown(header.storage_format)}, it "
            f"was opened with {_shown(given)}; open it with the format that it was written with"
        )


def _agree(written: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    if "name" not in written or "name" not in given:
        return True  # a custom format may read what it likes
    if written["name"] != given["name"]:
        return False
    ours, theirs = _parameters(given), _parameters(written)
    if ours.get("dtype") != theirs.get("dtype"):
        return False
    written_views, our_views = theirs.get("views", {}), ours.get("views", {})
    if isinstance(written_views, dict) and any(
        our_views.get(name, view) != view for name, view in written_views.items()
    ):
        return False
    payload = theirs.get("payload_format")
    return not isinstance(payload, dict) or _agree(payload, ours.get("payload_format", {}))


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
            f"{where} holds pickles, and reading a pickle runs the code that the file asks for, so "
            "this format is never chosen by a file. If you trust whoever wrote the data, pass "
            "storage_format=DocumentPickleFormat() (as payload_format of a StreamSpansFormat for "
            "spans)"
        )
    return MismatchError(
        f"{where} was written with the storage format {_shown(description)}, which is not built "
        "in; pass it with storage_format="
    )


def _shown(description: Mapping[str, Any]) -> str:
    if "class" in description:
        return shown(description["class"])
    name, parameters = description.get("name"), _parameters(description)
    return shown(name) + (f" {shown(parameters)}" if parameters else "")
