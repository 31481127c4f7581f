"""torchdata's StatefulDataLoader over a memmap of the tokens: see torch_loader.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from torchdata.stateful_dataloader import StatefulDataLoader

from peers.harness import Loader, Peer, Setting, serve
from peers.tokens import TokenSet
from peers.torch_loader import options


class TorchdataLoader(Loader):
    def __init__(self, tokens: TokenSet, setting: str) -> None:
        self._loader = StatefulDataLoader(**options(tokens, setting))

    def epoch(self) -> Iterator[Any]:
        batches: Iterator[Any] = iter(self._loader)
        return batches

    def state(self) -> Any:
        return self._loader.state_dict()

    def load(self, state: Any) -> None:
        self._loader.load_state_dict(state)


class Torchdata(Peer):
    packages = ("torchdata",)
    settings: ClassVar[dict[str, Setting]] = {
        "usual": Setting(False, "memmap, a window per sample, default collation"),
        "batched": Setting(False, "memmap, __getitems__ with one NumPy index", True),
        "batched, worker": Setting(True, "the same, 1 worker, prefetch_factor=4", True),
    }
    resumes = "batched"

    def open(self, tokens: TokenSet, setting: str) -> Loader:
        return TorchdataLoader(tokens, setting)


if __name__ == "__main__":
    serve(Torchdata())
