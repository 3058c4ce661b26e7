"""Check that no tool has shortened or replaced the kernels' names.

A compiled kernel uses one number of registers. So kernels with the same name and different numbers of registers are different
kernels. Triton launches its kernels through the driver API, never through the runtime API.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.store.library import Recording

# A name with at least this many numbers of registers is shared. In 95 intact traces, a name has one number, or two for a recompiled
# Triton kernel.
MIN_REGISTER_COUNTS = 3
# Wrong names with this share of the kernels' time change the shares of categories by up to five percentage points.
MIN_WRONG_SHARE = 0.05
_NAMES = f"""WITH named AS (SELECT name_id, count(DISTINCT registers_per_thread) AS registers, sum(dur_ns) AS ns, count(*) AS kernels
    FROM gpu_ops WHERE device = $device AND kind = 'kernel' GROUP BY name_id)
SELECT coalesce(sum(kernels) FILTER (registers >= {MIN_REGISTER_COUNTS}), 0), coalesce(sum(ns) FILTER (registers >= {MIN_REGISTER_COUNTS}), 0), sum(ns) FROM named"""
_TRITON = """SELECT count(*), coalesce(sum(g.dur_ns), 0) FROM gpu_ops g JOIN names n ON n.name_id = g.name_id
JOIN runtime_calls c USING (call_id) JOIN names called ON called.name_id = c.name_id
WHERE g.device = $device AND g.kind = 'kernel' AND n.name LIKE 'triton\\_%' ESCAPE '\\' AND called.name LIKE 'cudaLaunchKernel%'"""
WITHHELD: dict[str, Effect] = dict.fromkeys(
    ("tensor_core_time_share", "tensor_core_unknown_share", "exposed_comm_share", "flop_coverage", "mfu_factor_flop_kernels", "mfu_factor_efficiency"),
    "unknown",
)  # fmt: skip
ADVICE = "Use the trace as torch.profiler wrote it. If a tool shortens or replaces names, kernels cannot be recognised."
EVIDENCE = ("shapes", "gpu_peaks")  # Rules that compare a kernel with the peak of its dtype recognise the kernel by its name.


def checks(recording: Recording, device: int) -> Iterator[FailedCheck]:
    """Yield the failed check if many kernels of a device have wrong names."""
    shared, shared_ns, total_ns = recording.rows(_NAMES, {"device": device})[0]
    triton, triton_ns = recording.rows(_TRITON, {"device": device})[0]
    if not total_ns or max(shared_ns, triton_ns) <= MIN_WRONG_SHARE * total_ns:
        return
    if shared_ns >= triton_ns:
        count = int(shared)
        sentence = (
            f"{count:,} kernels share their name with kernels that use other numbers of registers, so the names are wrong."
        )
    else:
        count = int(triton)
        sentence = (
            f"{count:,} kernels have names of Triton, but were launched through the runtime API, which Triton never uses."
        )
    yield FailedCheck("kernel_names_wrong", count, sentence, ADVICE, evidence=EVIDENCE, effects=WITHHELD)
