"""Check that every launch has its record on the GPU.

The host's launches (kernels, CUDA graphs, asynchronous copies) are compared with the GPU operations that the profiler recorded
for them. Launches captured into a graph and fills of 0 bytes are not counted, because they leave no record.
"""

from __future__ import annotations

from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.units import percent

# Share of launches without a record. Metrics are withheld above this share. In 150 intact recordings of 12 kinds of GPU,
# every launch has its record. One launch in 500 may be a product that takes a fifth of the step.
MAX_LOST_SHARE = 0.002
# With fewer complete steps, the numbers are less certain: the first step after a gap in the records does not count fully, and the
# next two show no spread.
MIN_COMPLETE_STEPS = 4
# Relative difference between host times per step. A larger difference lowers the trust, as between profile and estimate.
MAX_HOST_TIME_DIFFERENCE = 0.05
HALF_RANGE = (0.45, 0.55)
RECORD_FEWER_STEPS = (
    "Record again with fewer steps and without Python stacks. The profiler drops records if its buffers overflow."
)
NODES = "Record again with `nsys profile --cuda-graph-trace=node --trace=cuda,nvtx --output=run python train.py`. A newer CUDA driver also helps; this one does not record kernels inside CUDA graphs."
COUNTERS = "Record again with fewer steps, while no other profiler (DCGM profiling, Nsight) uses the GPU."

RANGES = "Record again without profiler_metrics in _ExperimentalConfig."

OF_GPU_RECORDS: dict[str, Effect] = {
    "gpu_busy_share": "least",
    "gpu_idle_share": "most",
    "kernel_launches_per_step": "least",
    "flops_per_step": "least",
    "mfu": "least",
    "hfu": "least",
    "mfu_at_dtype": "least",
    "achieved_tflops": "least",
    **dict.fromkeys(
        (
            "step_time_ms", "step_time_unprofiled_est_ms", "exposed_comm_share", "tensor_core_time_share", "tensor_core_unknown_share",
            "sm_efficiency", "achieved_occupancy", "flop_coverage", "mfu_factor_busy", "mfu_factor_flop_kernels", "mfu_factor_efficiency",
        ),
        "unknown",
    ),
}  # fmt: skip
OF_STEP_TIME: dict[str, Effect] = dict.fromkeys(
    ("best_step_time_ms", "mfu", "hfu", "mfu_at_dtype", "achieved_tflops"), "unknown"
)
EVIDENCE = ("gpu_records", "launch_links", "steps")
CONSEQUENCES = ("waits_outlast_work", "graph_gaps")  # Checks that also fail if known records are lost.


def check(facts: DeviceFacts, *, timed: bool, steps: int) -> FailedCheck | None:
    """Return the failed check of one device; None if every launch has its record.

    ``timed`` means that the run's step time was measured without the trace, so it does not depend on GPU records. ``steps`` is
    the number of steps in the trace.
    """
    if not facts.lost_anywhere:
        return None
    launched = facts.launches + facts.lost_launches
    if facts.lost_launches and (facts.lost_share > MAX_LOST_SHARE or facts.lost_graphs):
        effects = OF_GPU_RECORDS if timed else OF_GPU_RECORDS | OF_STEP_TIME
        if 2 * facts.lost_graphs > facts.lost_launches:
            statement = f"{facts.lost_graphs:,} launches of CUDA graphs have no record of their kernels"
            headline, advice = "The kernels of CUDA graphs are missing. Record them too.", NODES
        elif 2 * facts.lost_unseen > facts.lost_launches:
            statement = f"Operators launched at least {facts.lost_launches:,} fewer GPU operations than in other steps with the same inputs"
            headline, advice = "Launches and their kernels are missing. Record again with fewer steps.", RECORD_FEWER_STEPS
        else:
            statement = f"{facts.lost_launches:,} of {launched:,} GPU operations have no record"
            headline = f"{_share(facts.lost_share)} of the GPU's records are missing. Record again with fewer steps."
            advice = RECORD_FEWER_STEPS
        sentence = f"{statement}. The profiler lost them."
        return FailedCheck("gpu_records_missing", facts.lost_launches, sentence, advice, headline, "error", EVIDENCE, effects)
    if facts.lost_launches:
        sentence = f"{facts.lost_launches:,} of {launched:,} GPU operations have no record. The profiler lost them."
        caution: dict[str, Effect] = dict.fromkeys((*OF_GPU_RECORDS, "best_step_time_ms"), "caution")
        return FailedCheck("gpu_records_missing", facts.lost_launches, sentence, RECORD_FEWER_STEPS, effects=caution)
    sentence = f"{facts.lacking_steps} of {steps} steps lack records of the GPU for {facts.lost_anywhere:,} launches. No number here includes these steps."
    if not facts.lacking_steps:
        sentence = (
            f"Outside of the steps, {facts.lost_anywhere:,} launches have no record on the GPU. No number here includes them."
        )
    few_complete = facts.lacking_steps > 0 and steps - facts.lacking_steps < MIN_COMPLETE_STEPS
    if not few_complete and facts.lacking_differ_by > MAX_HOST_TIME_DIFFERENCE:
        few_complete, sentence = (
            True,
            f"{sentence} Host times show that they differ from the counted steps, so the run's numbers may be different.",
        )
    doubts: dict[str, Effect] = dict.fromkeys((*OF_GPU_RECORDS, "best_step_time_ms"), "caution") if few_complete else {}
    return FailedCheck(
        "gpu_records_missing", facts.lost_anywhere, sentence, RECORD_FEWER_STEPS, severity="info", effects=doubts
    )


def check_without_records(launches: int, *, by_ranges: bool = False) -> FailedCheck | None:
    """Return the failed check of a trace with ``launches`` but no GPU operation; None without launches.

    ``by_ranges`` means that the trace has ranges of CUPTI's range profiler.
    """
    if not launches:
        return None
    sentence = f"The program launched {launches:,} operations on the GPU, but the profiler recorded none of them."
    advice = COUNTERS
    if by_ranges:
        sentence += " CUPTI's range profiler recorded counters instead."
        advice = RANGES
    headline = "The GPU's records are missing. Record again."
    effects: dict[str, Effect] = {"best_step_time_ms": "unknown", "step_time_ms": "unknown"}
    return FailedCheck(
        "gpu_records_missing", launches, sentence, advice, headline, "error", (*EVIDENCE, "host_records"), effects
    )


def check_unread(events: int, sentence: str) -> FailedCheck | None:
    """Return the failed check of a device with events of an unsupported format; None without any."""
    if not events:
        return None
    headline = "The device's events were not read, so nothing is known about it."
    effects: dict[str, Effect] = {"best_step_time_ms": "unknown", "step_time_ms": "unknown"}
    return FailedCheck("device_not_read", events, sentence, "", headline, "error", (*EVIDENCE, "host_records"), effects)


def _share(share: float) -> str:
    return "Half" if HALF_RANGE[0] <= share <= HALF_RANGE[1] else percent(share) if share >= 0.01 else "Some"
