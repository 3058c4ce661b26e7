"""Metrics of a device that are shares of its steady window or of its kernels' time."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.knowledge.owners import COMPUTE_OWNERS, owner_of
from sawtooth.analysis.metrics.metric import DeviceMeasurements, Metric
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.units import percent

NO_WINDOW = "The device ran nothing that the trace links to a launch."
NO_COMPUTE = "No compute kernel ran."
NO_SM_SHARES = "The trace has no launch sizes per SM: ROCm does not record them, and other accelerators have no SMs."


def _of_window(measured: DeviceMeasurements, ns: int) -> Reading:
    return Reading(ns / measured.window_ns) if measured.window_ns else missing(NO_WINDOW)


def busy_share(measured: DeviceMeasurements) -> Reading:
    """Return the share of the window in which the GPU did any work."""
    idle = idle_share(measured)
    return Reading(1 - idle.value) if idle.value is not None else idle


def idle_share(measured: DeviceMeasurements) -> Reading:
    """Return the share of the window in which no GPU operation ran."""
    return _of_window(measured, measured.owned_ns.get("idle", 0))


def exposed_communication(measured: DeviceMeasurements) -> Reading:
    """Return the share of the window in which only communication ran."""
    return _of_window(measured, measured.owned_ns.get("exposed_comm", 0))


def tensor_core_share(measured: DeviceMeasurements) -> Reading:
    """Return the share of compute time that tensor-core kernels own in the ledger."""
    compute = sum(measured.owned_ns.get(owner, 0) for owner in COMPUTE_OWNERS)
    return Reading(measured.owned_ns.get("tensor_core_compute", 0) / compute) if compute else missing(NO_COMPUTE)


def _kernels(measured: DeviceMeasurements) -> pd.DataFrame:
    return measured.kernels[measured.kernels["kind"] == "kernel"]


def undecided_share(measured: DeviceMeasurements) -> Reading:
    """Return the share of compute kernels' time whose tensor-core use is unknown."""
    kernels = _kernels(measured)
    compute = kernels[kernels["category"].map(lambda category: owner_of(category, "unknown") in COMPUTE_OWNERS).astype(bool)]
    total = float(compute["ns"].sum())
    return Reading(float(compute["undecided_ns"].sum()) / total) if total else missing(NO_COMPUTE)


def sm_efficiency(measured: DeviceMeasurements) -> Reading:
    """Return the mean share of SMs with a block of a kernel, over the window."""
    sm_ns = _kernels(measured)["sm_ns"].sum(min_count=1)
    if not measured.window_ns or pd.isna(sm_ns):
        return missing(NO_SM_SHARES)
    return Reading(min(float(sm_ns) / measured.window_ns, 1.0))  # The sum over several streams may exceed the window.


# Shares of the kernel time. If more than the first has no occupancy estimate, no mean is shown. If more than the second has
# none, the mean gets a note.
NO_MEAN_ABOVE, NO_NOTE_UP_TO = 0.5, 0.05


def occupancy(measured: DeviceMeasurements) -> Reading:
    """Return the time-weighted mean of the profiler's estimated occupancy.

    The profiler writes 0 for a kernel that it cannot estimate. If most kernel time has this 0, the mean is missing.
    """
    kernels = _kernels(measured)
    with_occupancy = kernels[kernels["occupancy_pct"].notna()]
    weight = with_occupancy["ns"].sum()
    if not weight:
        return missing("The trace has no occupancy estimates.")
    unseen = float(with_occupancy["occupancy_unseen_ns"].fillna(0).sum()) / weight
    not_estimated = f"The profiler wrote no occupancy for {percent(unseen)} of the kernel time"
    if unseen > NO_MEAN_ABOVE:
        return missing(f"{not_estimated}.")
    share = float((with_occupancy["occupancy_pct"] * with_occupancy["ns"]).sum() / weight / 100)
    if unseen > NO_NOTE_UP_TO:
        note = f"{not_estimated}. This part counts as 0, so the mean is a lower bound."
        return Reading(share, trust="caution", notes=(note,))
    return Reading(share, notes=("The profiler's estimate, not a measurement.",))


METRICS = (
    Metric(
        key="gpu_busy_share", label="GPU busy", unit="share", better="higher",
        definition="Union of all GPU operations in the steady window ÷ the steady window, as profiled.",
        source="Kernels, copies and memory sets.",
        compute=busy_share,
        high=1,
        doubted_by=("one_step_idle",),
        card=4,
        good=0.95,  # A run that the GPU limits typically reaches this.
    ),
    Metric(
        key="gpu_idle_share", label="GPU idle", unit="share", better="lower",
        definition="1 − GPU busy: the share of the steady window in which no GPU operation ran, as profiled.",
        source="The ledger.",
        compute=idle_share,
        high=1,
        doubted_by=("one_step_idle",),
    ),
    Metric(
        key="exposed_comm_share", label="Exposed communication", unit="share", better="lower",
        definition="Time in which communication kernels ran and no compute did ÷ the steady window.",
        source="The ledger.",
        compute=exposed_communication,
        high=1,
    ),
    Metric(
        key="tensor_core_time_share", label="Tensor-core time", unit="share", better="higher",
        definition="Time owned by tensor-core kernels ÷ time owned by any compute kernel, in the steady window.",
        source="Kernel names, operators and dtypes; kernel_names.toml.",
        compute=tensor_core_share,
        high=1,
        doubted_by=("undecided_kernels",),
        card=3,
        good=0.75,  # Transformers in bf16 with fused attention typically reach this.
    ),
    Metric(
        key="tensor_core_unknown_share", label="Tensor-core use unknown", unit="share", better="lower",
        definition="Time owned by kernels whose tensor-core use no rule decides ÷ time owned by any compute kernel.",
        source="Kernel names, operators and dtypes. Shown next to the tensor-core share, not included in it.",
        compute=undecided_share,
        high=1,
    ),
    Metric(
        key="sm_efficiency", label="SM efficiency", unit="share", better="higher",
        definition="Σ min(blocks per SM, 1) × kernel duration ÷ the steady window. This is the TensorBoard plugin's definition.",
        source="Kernel launch sizes.",
        compute=sm_efficiency,
        high=1,
        doubted_by=("one_step_idle",),
    ),
    Metric(
        key="achieved_occupancy", label="Estimated occupancy", unit="share", better="higher",
        definition="Kernel-duration-weighted mean of the profiler's estimated achieved occupancy.",
        source="Kernel arguments.",
        compute=occupancy,
        high=1,
    ),
)  # fmt: skip
