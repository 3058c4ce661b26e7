"""Check that the kernels' names are their own.

A compiled kernel has one number of registers, so many numbers under one name are many kernels. Triton's kernels are launched
through the driver's interface, never by a call of the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.store.library import Recording

REGISTERS = 3  # numbers of registers under one name. In 95 intact traces, names have one, and of a recompiled Triton kernel two
SHARE = 0.05  # of the kernels' time: it changes the shares of categories and of tensor cores by as many points
_NAMES = f"""WITH named AS (SELECT name_id, count(DISTINCT registers_per_thread) AS registers, sum(dur_ns) AS ns, count(*) AS kernels
    FROM gpu_ops WHERE device = $device AND kind = 'kernel' GROUP BY name_id)
SELECT coalesce(sum(kernels) FILTER (registers >= {REGISTERS}), 0), coalesce(sum(ns) FILTER (registers >= {REGISTERS}), 0), sum(ns) FROM named"""
_TRITON = """SELECT count(*), coalesce(sum(g.dur_ns), 0) FROM gpu_ops g JOIN names n ON n.name_id = g.name_id
JOIN runtime_calls c USING (call_id) JOIN names called ON called.name_id = c.name_id
WHERE g.device = $device AND g.kind = 'kernel' AND n.name LIKE 'triton\\_%' ESCAPE '\\' AND called.name LIKE 'cudaLaunchKernel%'"""
WITHHELD: dict[str, Effect] = dict.fromkeys(
    ("tensor_core_time_share", "tensor_core_unknown_share", "exposed_comm_share", "flop_coverage", "mfu_factor_flop_kernels", "mfu_factor_efficiency"),
    "unknown",
)  # fmt: skip
ADVICE = "Use the trace as torch.profiler wrote it: a tool that shortens or replaces names removes what tells kernels apart."
EVIDENCE = ("shapes", "gpu_peaks")  # rules that compare a kernel with the peak of its dtype recognize it by name


def checks(recording: Recording, device: int) -> Iterator[FailedCheck]:
    """Yield the failed check of the names of a device's kernels; nothing if they are their own."""
    shared, shared_ns, total_ns = recording.rows(_NAMES, {"device": device})[0]
    triton, triton_ns = recording.rows(_TRITON, {"device": device})[0]
    if not total_ns or max(shared_ns, triton_ns) <= SHARE * total_ns:
        return
    if shared_ns >= triton_ns:
        count = int(shared)
        sentence = (
            f"{count:,} kernels share their name with kernels that use other numbers of registers: the names are not their own."
        )
    else:
        count = int(triton)
        sentence = f"{count:,} kernels are named as Triton's, but the runtime launched them, as it never does with Triton's."
    yield FailedCheck("kernel_names_wrong", count, sentence, ADVICE, evidence=EVIDENCE, effects=WITHHELD)
