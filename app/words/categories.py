"""What categories of GPU work are called for people; the tables of the Reference screen say what each holds."""

from __future__ import annotations

WORDS = {
    "gemm": "matrix products",
    "conv": "convolutions",
    "copy": "copies",
    "memcpy": "transfers",
    "memset": "memory set to a value",
    "norm": "normalization",
    "rnn": "recurrent layers",
    "state_space": "state-space layers",
    "reduction": "reductions",
    "optimizer": "the optimizer",
}


def named(category: str) -> str:
    """Return a category in words: gemm is matrix products."""
    return WORDS.get(category, category.replace("_", " "))
