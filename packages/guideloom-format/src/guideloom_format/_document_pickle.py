"""`DocumentPickleFormat`: any Python object, for data that you wrote yourself."""

from __future__ import annotations

import pickle
from typing import Any

from guideloom_format._errors import DamagedFileError, DataError
from guideloom_format._parts import DOCUMENT

PROTOCOL = 5


class DocumentPickleFormat:
    """Documents are Python objects, stored with pickle. Only for data that you trust.

    Reading a pickle runs code that the file chooses: whoever can write to the dataset can run any
    program as the user who reads it, delete files, or send secrets away. Checksums do not protect
    from that, since the writer makes them; and a damaged pickle can end the process. Use it for
    data that you wrote yourself and that nobody else can change; use `DocumentJSONFormat`,
    `DocumentNumpyFormat` or a format of your own for everything that is passed on.
    `guideloom.open` never chooses this format by itself.

    A pickle also depends on the classes in it: rename one, and the documents cannot be read.

    ::

        append  any object that pickle takes
        sample  an equal object
    """

    name = "document-pickle"
    storage_kind = DOCUMENT

    def parameters(self) -> dict[str, Any]:
        """What the header says of the format besides its name."""
        return {}

    def pack(self, data: Any) -> bytes:
        """The pickled object.

        Raises:
            DataError: it cannot be pickled.
        """
        try:
            return pickle.dumps(data, protocol=PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"DocumentPickleFormat cannot pickle {type(data).__name__}: {error}"
            ) from error

    def unpack(self, buffer: memoryview, shard: int) -> Any:
        """The object. Runs whatever code the pickle asks for.

        Raises:
            DamagedFileError: not a pickle, or one of a class that is not there.
        """
        try:
            return pickle.loads(buffer)  # noqa: S301  # the reading program asked for it by name
        except Exception as error:  # damaged bytes can raise anything
            raise DamagedFileError(
                f"a document of shard {shard} cannot be unpickled: {error}. It was written with "
                "another storage format, its class has moved, or it is damaged"
            ) from error

    def __repr__(self) -> str:
        return "DocumentPickleFormat()"
