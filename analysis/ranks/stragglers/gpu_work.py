"""A rank's kernels and copies by step, and the kernels that two ranks share."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.ranks.contention import Kernels, Quiet, Shape

F64 = NDArray[np.float64]


class HostCopies(NamedTuple):
    """Copies between host and GPU: time in ns by step, gpu_op_id, and the calls that block the host.

    ``block`` says whether most of the time is in copies from or to pageable memory, which block the host.
    """

    by_step: F64
    operations: tuple[int, ...]
    blocking_calls: tuple[int, ...]
    block: bool


def host_copies(kernels: Kernels, steps: tuple[int, ...]) -> HostCopies:
    """Return the copies between host and GPU in ``steps``."""
    ops = kernels.ops[kernels.ops["copies"].astype(bool) & kernels.ops["step"].isin(steps)]
    by_step = ops.groupby("step")["dur_ns"].sum()
    pageable = ops[ops["name"].astype(str).str.contains("Pageable")]
    calls = tuple(int(call) for call in pageable["call_id"].dropna())
    return HostCopies(
        np.array([float(by_step.get(step, 0.0)) for step in steps]),
        tuple(ops["gpu_op_id"].astype(int).tolist()),
        calls,
        2 * float(pageable["dur_ns"].sum()) > float(ops["dur_ns"].sum()),
    )


def without_host_copies(kernels: Kernels) -> Kernels:
    """Return ``kernels`` without the copies between host and GPU."""
    return replace(kernels, ops=kernels.ops[~kernels.ops["copies"].astype(bool)])


class StepKernelWork(NamedTuple):
    """Kernel time in ns by step, the kernels' gpu_op_id, and the loud kernels (as in ``OwnTime``)."""

    by_step: F64
    operations: tuple[int, ...]
    loud: dict[Shape, tuple[F64, F64]]


def kernel_work(kernels: Kernels, steps: tuple[int, ...]) -> StepKernelWork:
    """Return the kernel time of a rank in ``steps``.

    Communication slows kernels that run at the same time, most on the rank that waits. So the time of these kernels is limited to
    that of the same kernels without communication.
    """
    ops = kernels.ops[kernels.ops["step"].isin(steps)]
    overlapping = ops["overlaps_communication"].to_numpy(bool)
    shapes = zip(ops["name"].astype(str), ops["shape"].astype(str), strict=True)
    usual_ns = np.array([kernels.quiet.get(shape, (np.nan, 0))[0] for shape in shapes], np.float64)
    took_ns = ops["dur_ns"].to_numpy(np.float64)
    took_ns = np.where(overlapping & ~np.isnan(usual_ns), np.fmin(took_ns, usual_ns), took_ns)
    by_step = pd.Series(took_ns).groupby(ops["step"].to_numpy()).sum()
    work = np.array([float(by_step.get(step, 0.0)) for step in steps])
    unknown = ops[overlapping & np.isnan(usual_ns)]
    sums = unknown.groupby(["name", "shape", "step"])["dur_ns"].agg(["sum", "size"]).reset_index()
    loud = {
        (str(name), str(shape)): tuple(
            rows.set_index("step")[c].reindex(steps, fill_value=0).to_numpy(np.float64) for c in ("sum", "size")
        )
        for (name, shape), rows in sums.groupby(["name", "shape"])
    }
    return StepKernelWork(work, tuple(ops["gpu_op_id"].astype(int).tolist()), loud)


def same_kernels_ratio(quiet: Quiet, peer_quiet: Quiet) -> tuple[float, float]:
    """Return the time ratio of kernels that both run in the same shape, and their share of ``quiet``."""
    shared = quiet.keys() & peer_quiet.keys()
    own_ns = sum(quiet[key][0] * quiet[key][1] for key in shared)
    other_ns = sum(peer_quiet[key][0] * quiet[key][1] for key in shared)
    total = sum(median * n for median, n in quiet.values())
    return (own_ns / other_ns if other_ns else 1.0), (own_ns / total if total else 0.0)


def same_launches_share(quiet: Quiet, shapes: Set[Shape]) -> float:
    """Return the share of the kernels of ``quiet``, by count, whose name and shape are among ``shapes``."""
    total = sum(n for _, n in quiet.values())
    return sum(n for shape, (_, n) in quiet.items() if shape in shapes) / total if total else 1.0
