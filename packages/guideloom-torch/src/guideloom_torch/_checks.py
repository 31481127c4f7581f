"""Arguments of a loader that are no numbers: checked before anything is opened."""

from __future__ import annotations

from typing import Any

from guideloom_format._integers import shown, type_shown
from guideloom_format._processes import is_sending
from guideloom_format._storage import Storage


def check_samples(dataset: Any, collate_fn: Any) -> None:
    """See that a dataset is one, and that `collate_fn` can be called.

    Raises:
        TypeError: not so.
    """
    is_dataset = hasattr(dataset, "sync_reader") and not hasattr(dataset, "sync_writer")
    if isinstance(dataset, type) or not is_dataset:
        raise TypeError(
            f"dataset is {type_shown(dataset)}; expected a dataset such as StreamDataset, or use "
            "StatefulDataLoader.from_storage"
        )
    if collate_fn is not None and not callable(collate_fn):
        raise TypeError(
            f"collate_fn is {shown(collate_fn)}; expected a function of a list of samples, or None"
        )


def check_storage(storage: Any) -> None:
    """See that a storage is one.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(storage, Storage):
        raise TypeError(
            f"storage is {type_shown(storage)}; expected a StreamStorage, StreamWithMetaStorage or "
            "DocumentStorage. guideloom.open(directory) gives it"
        )


def pads(pad: Any) -> bool:
    """Whether steps are filled up.

    Raises:
        ValueError: neither "mask" nor None.
    """
    if pad is None:
        return False
    if not isinstance(pad, str) or pad != "mask":
        raise ValueError(f'pad is {shown(pad)}; expected "mask" or None')
    return True


def refuse_copy() -> None:
    """Raise, but where a loader belongs to what a worker process is sent, and stays unused there.

    A training job's object has the loader, and its method is the `collate_fn`.

    Raises:
        TypeError: elsewhere.
    """
    if not is_sending():
        raise TypeError(
            "a StatefulDataLoader cannot be copied or pickled; build another from the same "
            "dataset (loader.dataset, which can be) with the same options, and go to this one's "
            "place with load_state_dict(loader.state_dict())"
        )
