"""Kernels that run during communication, and the time that waiting collectives add to them.

A collective that waits for other ranks takes SMs and memory bandwidth from kernels that run at the same time. Under the
profiler, the rank with the faster host waits far longer than in the run. So the recorded times of its kernels are too long.
The added time is the difference to the same kernels without communication, on this rank or another. It is subtracted. The
transfer of a collective also slows kernels. This slowdown is not removed, because it also happens without the profiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.intervals import Intervals, overlaps, union

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

# Largest factor by which communication slows a kernel. A communication kernel uses only a few SMs, so larger factors have another
# cause.
MAX_SLOWDOWN = 2.0
# A kernel counts as interrupted if it takes longer than the same kernel elsewhere by this time and this factor. Processes that
# share a GPU take turns of about 2 ms.
MIN_INTERRUPTION_NS = 500_000
MIN_INTERRUPTION_FACTOR = 3.0

HOST_COPY = r"(?i)^Memcpy (HtoD|DtoH)|^Copy(HostToDevice|DeviceToHost)"  # Names of copies between host and GPU.

# A kernel's name, and a text with its grid, its block and its bytes. If FLOPs are counted, the text has a digest of the
# operator's inputs too.
Shape = tuple[str, str]
# By shape, the median time in ns and the number of the kernels that run without communication.
Quiet = Mapping[Shape, tuple[float, int]]


@dataclass(frozen=True, eq=False)
class Kernels:
    """The GPU work of one rank without communication.

    ``ops`` has gpu_op_id, call_id, start_ns, end_ns, dur_ns, step, name, shape, copies (whether it copies between host and GPU)
    and overlaps_communication (whether communication runs at the same time). ``communication`` has the gpu_op_id of the communication kernels. ``quiet`` has, by shape, the median time in
    ns and the number of kernels that run without communication.
    """

    ops: pd.DataFrame
    communication: NDArray[np.int64]
    quiet: Quiet


def kernels_of(recording: Recording, device: int) -> Kernels:
    """Return the kernels of a device that belong to its steps.

    The inputs of operators with FLOPs are part of a kernel's shape, because persistent kernels have the same grid for any size.
    """
    table = recording.frame(
        "SELECT g.gpu_op_id, g.call_id, g.start_ns, g.start_ns + g.dur_ns AS end_ns, g.dur_ns, s.step, s.category = 'communication' AS is_communication, "
        "n.name AS name, g.kind = 'memcpy' AND regexp_matches(n.name, $copies) AS copies, concat_ws(',', grid_x, grid_y, grid_z, block_x, block_y, block_z, bytes, i.inputs) AS shape "
        "FROM gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) JOIN names n USING (name_id) "
        "LEFT JOIN cpu_ops o ON o.cpu_op_id = s.flop_op_id "
        "LEFT JOIN (SELECT signature_id, left(md5(input_dims), 8) AS inputs FROM signatures) i ON i.signature_id = o.signature_id "
        "WHERE g.device = $device",
        {"device": device, "copies": HOST_COPY},
    )
    is_communication = table["is_communication"].to_numpy(bool)
    ops = table[~is_communication & table["step"].notna()].drop(columns="is_communication").reset_index(drop=True)
    communicating = union(table.loc[is_communication, "start_ns"], table.loc[is_communication, "end_ns"])
    overlapping = np.zeros(len(ops), bool)
    overlapping[overlaps(_spans(ops), communicating)[2]] = True
    ops["overlaps_communication"] = overlapping
    quiet = ops[~overlapping].groupby(["name", "shape"])["dur_ns"].agg(["median", "size"])
    communication = table.loc[is_communication, "gpu_op_id"].to_numpy(np.int64)
    return Kernels(
        ops, communication, {(str(name), str(shape)): (float(m), int(n)) for (name, shape), m, n in quiet.itertuples()}
    )


def shortest_quiet_ns(ranks: Sequence[Kernels]) -> dict[Shape, float]:
    """Return the smallest median time of each kernel shape over the ranks, in ns, without communication."""
    shortest: dict[Shape, float] = {}
    for rank in ranks:
        for shape, (median, _) in rank.quiet.items():
            shortest[shape] = min(median, shortest.get(shape, median))
    return shortest


def interrupted_ms(rank: Kernels, counted: NDArray[np.int32], shortest: Mapping[Shape, float]) -> float:
    """Return the time per counted step, in ms, for which single kernels were interrupted.

    An interrupted kernel takes longer than the same kernel elsewhere, by MIN_INTERRUPTION_NS or more. This happens if the GPU
    also runs another process, in turns with this one.
    """
    ops = rank.ops[rank.ops["step"].isin(counted) & (rank.ops["dur_ns"] > MIN_INTERRUPTION_NS)]
    took_ns, usual_ns = ops["dur_ns"].to_numpy(np.float64), _usual_ns(ops, {}, shortest)
    excess = took_ns - usual_ns
    return (
        float(excess[(excess > MIN_INTERRUPTION_NS) & (took_ns > MIN_INTERRUPTION_FACTOR * usual_ns)].sum())
        / max(len(counted), 1)
        / 1e6
    )


def slowed_by_waits(ranks: Sequence[Kernels], rows: pd.DataFrame) -> list[pd.Series]:
    """Return, for each rank, how much waiting collectives slowed its kernels, in ns by gpu_op_id.

    ``rows`` are the matched collectives (of ``matching.match``). Each of them waits first, and transfers once all its members
    have arrived.
    """
    shortest = shortest_quiet_ns(ranks)
    slowed = []
    for position, rank in enumerate(ranks):
        rows_of_rank = rows[rows["position"] == position]
        start = rows_of_rank["start_ns"].to_numpy(np.int64)
        waiting = union(start, start + rows_of_rank["wait_ns"].to_numpy(np.int64))
        starts, stops, op, _ = overlaps(_spans(rank.ops), waiting)
        waiting_ns = np.zeros(len(rank.ops))
        np.add.at(waiting_ns, op, stops - starts)
        hit = rank.ops[waiting_ns > 0]
        usual_ns, took_ns = _usual_ns(hit, rank.quiet, shortest), hit["dur_ns"].to_numpy(np.float64)
        slowdown = np.maximum(took_ns - usual_ns, 0.0) * np.minimum(waiting_ns[waiting_ns > 0] / np.maximum(took_ns, 1.0), 1.0)
        slowdown[took_ns > MAX_SLOWDOWN * usual_ns] = 0.0
        slowed.append(pd.Series(np.rint(slowdown).astype(np.int64), index=hit["gpu_op_id"].to_numpy(np.int64)))
    return slowed


def _usual_ns(ops: pd.DataFrame, quiet: Quiet, shortest: Mapping[Shape, float]) -> NDArray[np.float64]:
    """Return the usual time of each kernel without communication, in ns.

    It is the time of the same shape on the same rank, or else on the fastest rank. It is infinite if no kernel of the shape ran
    without communication.
    """
    shapes = zip(ops["name"].astype(str), ops["shape"].astype(str), strict=True)
    return np.array([quiet[s][0] if s in quiet else shortest.get(s, np.inf) for s in shapes], np.float64)


def _spans(ops: pd.DataFrame) -> Intervals:
    return Intervals(ops["start_ns"].to_numpy(np.int64), ops["end_ns"].to_numpy(np.int64))
