"""Check that times on the GPU are possible.

No operation runs before its launch, kernels last as long as hardware needs, and few operations had to be cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.integrity.lost_records import EVIDENCE, OF_GPU_RECORDS, OF_STEP_TIME
from sawtooth.analysis.store.library import Recording

EARLY_NS = 20_000  # clocks of host and GPU agree to a few microseconds after the profiler's own correction
EARLY_SHARE = 0.05  # share of the checked operations: fewer may be retried or repeated correlations
LOOKED_AT = 200_000  # operations of a large recording: the share of more would be no more certain
SHORTEST_NS = 500  # an empty kernel takes 1 µs on every GPU in use
FEWEST = 20  # kernels: with fewer, the median may be that of a few fills
CUT_SHARE = 0.2  # share of all operations: above it, durations in general are wrong, and not only some of them

_EARLY = f"""SELECT count(*) FILTER (g.start_ns < c.start_ns - {EARLY_NS}), count(*) FROM gpu_ops g JOIN runtime_calls c USING (call_id)
WHERE g.device = $device AND g.gpu_op_id % greatest((SELECT count(*) FROM gpu_ops) // {LOOKED_AT}, 1) = 0"""
_KERNELS = "SELECT median(dur_ns) FILTER (kind = 'kernel'), count(*) FILTER (kind = 'kernel'), count(*) FROM gpu_ops WHERE device = $device"
WITHHELD: dict[str, Effect] = dict.fromkeys((*OF_GPU_RECORDS, *OF_STEP_TIME), "unknown")
CLOCKS = "Record again, with the newest driver: the profiler maps the GPU's clock to the host's."
UNITS = "Write durations in microseconds, as torch.profiler does, or record again."


def checks(recording: Recording, device: int) -> Iterator[FailedCheck]:
    """Yield the failed checks of the times of one device."""
    early, looked_at = recording.rows(_EARLY, {"device": device})[0]
    if early > EARLY_SHARE * looked_at:
        sentence = f"{early:,} of {looked_at:,} GPU operations begin before they are launched: the clocks of GPU and host do not agree."
        headline = "The clocks of GPU and host do not agree: record again."
        yield FailedCheck("clocks_disagree", early, sentence, CLOCKS, headline, "error", EVIDENCE, WITHHELD)
    median, kernels, operations = recording.rows(_KERNELS, {"device": device})[0]
    if kernels >= FEWEST and median < SHORTEST_NS:
        sentence = f"Half of the kernels last less than {median:,.0f} ns; an empty kernel takes about 1,000 ns."
        headline = "The GPU's durations are too short to be true: record again."
        yield FailedCheck("durations_too_short", kernels, sentence, UNITS, headline, "error", EVIDENCE, WITHHELD)
    cut = sum(count for (count,) in recording.rows("SELECT count FROM diagnostics WHERE key = 'overrun'"))
    if cut > CUT_SHARE * operations:
        sentence = f"{cut:,} GPU operations run into the next one of their stream: their durations are wrong."
        headline = "The GPU's durations are too long to be true: record again."
        yield FailedCheck("durations_too_long", cut, sentence, UNITS, headline, "error", EVIDENCE, WITHHELD)
