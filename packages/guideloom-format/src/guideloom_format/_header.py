"""`guideloom.json`: what a dataset is. Created once, exclusively; never changed."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from guideloom_format import _names
from guideloom_format._compat import VERSION, check_features, check_version
from guideloom_format._dtypes import dtype_from_json, dtype_to_json
from guideloom_format._errors import DataError, MismatchError
from guideloom_format._members import Members
from guideloom_format._parts import DATA_ROLES
from guideloom_format._sealed import FORMAT, seal, unseal

MAX_HEADER_BYTES = 1 << 20
KINDS = tuple(DATA_ROLES)

_DATASET_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True)
class Header:
    """The content of `guideloom.json`.

    Attributes:
        kind: `stream`, `document` or `stream-with-meta`.
        element_type: dtype of a stream's elements, little-endian.
        storage_format: how samples are packed: `{"name": …, "parameters": {…}}` for a built-in
            format, `{"class": …}` for a custom one, as information only.
        dataset_id: 32 hexadecimal digits, random; every file of the dataset is bound to it.
        user: whatever the writer wants to say: tokenizer, licence, provenance. A JSON object.
        required_features: what a reader must know to read this dataset.
        optional_features: what a reader may ignore.
        version: of the format, MAJOR.MINOR.
        written_by: program and version, as information only.
    """

    kind: str
    element_type: np.dtype[Any]
    storage_format: Mapping[str, Any]
    dataset_id: str = field(default_factory=lambda: secrets.token_hex(16))
    user: Mapping[str, Any] = field(default_factory=dict)
    required_features: tuple[str, ...] = ()
    optional_features: tuple[str, ...] = ()
    version: str = VERSION
    written_by: str = ""

    def encode(self) -> bytes:
        """The file.

        Raises:
            DataError: `user` is not JSON, or the file would exceed 1 MiB.
        """
        if not isinstance(self.user, Mapping):
            raise DataError(
                f"the header's user object is a {type(self.user).__name__}; expected a mapping "
                "with string keys, which becomes a JSON object"
            )
        members = {
            "format": FORMAT,
            "type": "header",
            "version": self.version,
            "kind": self.kind,
            "dataset_id": self.dataset_id,
            "element_type": dtype_to_json(self.element_type),
            "storage_format": dict(self.storage_format),
            "required_features": list(self.required_features),
            "optional_features": list(self.optional_features),
            "written_by": self.written_by,
            "user": dict(self.user),
        }
        try:
            data = seal(members)
            self.decode(data)  # what no reader would open is not written
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"the header's user object cannot be written as JSON ({error}); "
                "use strings, numbers, booleans, None, lists and mappings with string keys"
            ) from error
        if len(data) > MAX_HEADER_BYTES:
            raise DataError(
                f"the header would have {len(data)} bytes, at most {MAX_HEADER_BYTES} are allowed; "
                "keep the user object short and refer to longer texts"
            )
        return data

    @classmethod
    def decode(cls, data: bytes, where: str = _names.HEADER) -> Header:
        """The header in a file.

        Raises:
            DamagedFileError: not a header, or a damaged one.
            UnsupportedFormatError: another major version, or an unknown required feature.
        """
        members = Members(unseal(data, where), where)
        members.expect("format", FORMAT, "the file of a GuideLoom dataset")
        members.expect("type", "header", f"the file is named {_names.HEADER}")
        version = check_version(members)
        required = check_features(members)
        kind = members.text("kind")
        if kind not in KINDS:
            raise members.wrong("kind", kind, f"one of {', '.join(KINDS)}")
        dataset_id = members.text("dataset_id")
        if not _DATASET_ID.fullmatch(dataset_id):
            raise members.wrong("dataset_id", dataset_id, "32 lower-case hexadecimal digits")
        return cls(
            kind=kind,
            element_type=dtype_from_json(members, "element_type"),
            storage_format=members.nested("storage_format").values,
            dataset_id=dataset_id,
            user=members.nested("user").values,
            required_features=required,
            optional_features=members.strings("optional_features"),
            version=version,
            written_by=members.text("written_by"),
        )

    def check_opened_as(self, kind: str, element_type: np.dtype[Any], directory: str) -> None:
        """Raises `MismatchError` unless the dataset is of this kind and element type."""
        if kind != self.kind:
            raise MismatchError(
                f"{directory} holds a dataset of kind {self.kind!r}, it was opened as {kind!r}; "
                f"open it with the storage class for {self.kind!r}"
            )
        if element_type != self.element_type:
            raise MismatchError(
                f"{directory} holds elements of type {_show(self.element_type)}, it was opened "
                f"with a storage format of type {_show(element_type)}; "
                "open it with the format that it was written with"
            )


def _show(dtype: np.dtype[Any]) -> str:
    text = str(dtype_to_json(dtype))
    return text if len(text) <= 400 else text[:397] + "..."
