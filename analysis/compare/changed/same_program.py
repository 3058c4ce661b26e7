"""Recognize whether two runs are of one program, by the kernels that both launch.

This is used if no shapes of matrix products are recorded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sawtooth.analysis.compare.matching import PerStepWork

# Smallest number of kernel kinds on each side. If a program with fewer kinds rewrites one kernel, the sides may share none.
MIN_KERNEL_KINDS = 4
# A smaller share of shared kernels shows two programs. The share was at least half in 22 recorded pairs of one program, and 5 %
# in a pair of a CuPy and a PyTorch program.
MIN_SHARED_SHARE = 0.1
# Least share of a side's time in kernels with names to compare. Kernels in CUDA graphs or from Triton have none.
MIN_NAMED_SHARE = 0.5
_UNNAMED = re.compile(r"^(triton_|CUDA graph|HIP graph)")
_NO_KERNEL = re.compile(r"^(Memcpy|Memset)")
_PREFIX = re.compile(r"^void |\(anonymous namespace\)::|<unnamed>::")
_BASE_NAME = re.compile(r"[\w:]+")


def shared_kernels(a: Sequence[PerStepWork], b: Sequence[PerStepWork]) -> float | None:
    """Return the share of time in kernels whose kind both sides have, on the side with the larger share.

    None if too few kernels have names. A kernel's kind is its name without template arguments, which change with dtype and shape.
    """
    times = [_by_kind(side) for side in (a, b)]
    if any(len(side) < MIN_KERNEL_KINDS for side in times) or any(_named_share(side) < MIN_NAMED_SHARE for side in (a, b)):
        return None
    shared = times[0].keys() & times[1].keys()
    return max(sum(side[kind] for kind in shared) / sum(side.values()) for side in times)


def _by_kind(pieces: Sequence[PerStepWork]) -> dict[str, float]:
    times: dict[str, float] = {}
    for piece in pieces:
        if not _UNNAMED.match(piece.name) and not _NO_KERNEL.match(piece.name):
            name = _PREFIX.sub("", piece.name)
            base = _BASE_NAME.match(name)
            kind = base.group(0) if base else name
            times[kind] = times.get(kind, 0.0) + float(piece.ns)
    return {kind: ns for kind, ns in times.items() if ns > 0}


def _named_share(pieces: Sequence[PerStepWork]) -> float:
    kernels = [piece for piece in pieces if not _NO_KERNEL.match(piece.name)]
    total = sum(float(piece.ns) for piece in kernels)
    return sum(float(piece.ns) for piece in kernels if not _UNNAMED.match(piece.name)) / total if total else 0.0
