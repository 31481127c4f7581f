"""Types that NumPy does not have by itself, stored as the bits of unsigned integers.

bfloat16 and the 8-bit floats come from the package ml_dtypes, which only those need who use them.
The header says which fields hold what; other languages read the integers.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from guideloom_format._errors import MissingPackageError, UnsupportedFormatError
from guideloom_format._integers import shown

_PACKAGE = "ml_dtypes"


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype was added to NumPy by ml_dtypes."""
    return dtype.type.__module__.split(".")[0] == _PACKAGE


def stored_bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The unsigned integer that holds the bits of an extension type of 1 or 2 bytes."""
    return np.dtype(f"<u{dtype.itemsize}")


def without_extensions(
    dtype: np.dtype[Any],
) -> tuple[np.dtype[Any], dict[str, np.dtype[Any]]]:
    """A structured dtype with unsigned integers for extension types, and which fields had them."""
    fields = dtype.fields
    if dtype.names is None or fields is None or any(len(f) > 2 for f in fields.values()):
        return dtype, {}
    views: dict[str, np.dtype[Any]] = {}
    formats: list[Any] = []
    for name in dtype.names:
        field = fields[name][0]
        if is_extension(field.base) and field.base.itemsize <= 2:
            views[name] = np.dtype(field.base.type)
            formats.append((stored_bits(field.base), field.shape))
        else:
            formats.append(field)
    if not views:
        return dtype, {}
    return _structured(dtype, formats), views


def with_extensions(dtype: np.dtype[Any], views: Any, where: str) -> np.dtype[Any]:
    """The inverse: the dtype with the extension types that a header names.

    Raises:
        MissingPackageError: ml_dtypes is not installed.
        UnsupportedFormatError: it does not have one of the types, or the header names a field
            that does not fit.
    """
    if not isinstance(views, Mapping):
        raise UnsupportedFormatError(
            f"{where}: views is {shown(views)}; expected an object of field to type. Pass a "
            "storage format with unsigned integers for fields that hold other types"
        )
    if not views:
        return dtype
    try:
        package = importlib.import_module(_PACKAGE)
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"{where} holds fields of types {shown(sorted(map(str, views.values())))}, "
            "which the package ml_dtypes has. Install it with: pip install ml_dtypes. Or pass a "
            "storage format with unsigned integers for these fields, to have their bits"
        ) from error
    names: tuple[str, ...] = dtype.names or ()
    fields: Mapping[str, Any] = dtype.fields or {}
    formats: list[Any] = [fields[name][0] for name in names]
    for name, text in views.items():
        scalar = getattr(package, text, None) if isinstance(text, str) else None
        extension = np.dtype(scalar) if isinstance(scalar, type) else None
        stored = fields[name][0] if name in fields else None
        if (
            extension is None
            or not is_extension(extension)
            or extension.itemsize not in (1, 2)
            or stored is None
            or stored.base != stored_bits(extension)
        ):
            raise UnsupportedFormatError(
                f"{where}: field {shown(name)} is said to hold {shown(text)}, which is not a type "
                "of ml_dtypes of the field's size; install a newer ml_dtypes, or pass a storage "
                "format with unsigned integers for the field"
            )
        formats[names.index(name)] = (extension, stored.shape)
    return _structured(dtype, formats)


def _structured(layout: np.dtype[Any], formats: list[Any]) -> np.dtype[Any]:
    """A dtype with the layout of another and these types of fields."""
    fields: Mapping[str, Any] = layout.fields or {}
    description: Any = {
        "names": list(fields),
        "formats": formats,
        "offsets": [field[1] for field in fields.values()],
        "itemsize": layout.itemsize,
    }
    dtype: np.dtype[Any] = np.dtype(description)
    return dtype
