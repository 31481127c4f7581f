"""The value behind documents in a padded batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format._integers import shown

_NUMBERS = "biufc"


def padding(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The padding value in the documents' type, 0-d.

    Integers and booleans must stay what they are; floats may be rounded to a float type, but stay
    finite. For types that are not numbers 0 stands for zero bytes.

    Raises:
        ValueError: a value that the type does not hold.
    """
    try:
        given = np.asarray(value)
    except Exception:  # noqa: BLE001  # lists of unlike lengths, a tensor that is elsewhere, …
        given = np.empty((), dtype=object)
    if given.ndim == 0 and given.dtype.kind in _NUMBERS:
        if dtype.kind not in _NUMBERS:
            if given == 0:
                return np.zeros((), dtype=dtype)
            raise ValueError(
                f"pad_value is {shown(value)}, and documents are arrays of {dtype}; expected 0, "
                "which stands for zero bytes"
            )
        if given.dtype.kind != "c" or dtype.kind == "c":
            with np.errstate(all="ignore"):
                stored = given.astype(dtype)
            if _kept(given, stored):
                return stored
    raise ValueError(
        f"pad_value is {shown(value)}, which {dtype} does not hold unchanged; choose a value of "
        "the documents' type"
    )


def _kept(given: NDArray[Any], stored: NDArray[Any]) -> bool:
    if given.dtype.kind in "fc" and stored.dtype.kind in "fc":
        if np.isnan(given):
            return bool(np.isnan(stored))
        return bool(np.isfinite(given) == np.isfinite(stored))
    return bool(given.item() == stored.item())  # exact, also between integers and floats
