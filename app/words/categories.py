"""Readable names of categories of GPU work; the Reference screen describes each category."""

from __future__ import annotations

WORDS = {
    "gemm": "matrix products",
    "conv": "convolutions",
    "copy": "copy kernels",
    "memcpy": "transfers",
    "memset": "memset",
    "norm": "normalization",
    "rnn": "recurrent layers",
    "state_space": "state-space layers",
    "reduction": "reductions",
    "optimizer": "the optimizer",
}


def in_words(category: str) -> str:
    """Return a category in words, such as "matrix products" for gemm."""
    return WORDS.get(category, category.replace("_", " "))
