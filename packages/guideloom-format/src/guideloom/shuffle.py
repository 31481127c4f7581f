"""The permutation behind the global shuffle."""

from guideloom_format import FeistelShuffler

__all__ = ["FeistelShuffler"]
