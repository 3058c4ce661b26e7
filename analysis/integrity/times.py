"""Check that the recorded times are possible.

* No GPU operation begins before its launch, or after the call that waited for it.
* Kernels, operators and calls are not shorter or longer than hardware and software allow.
* Few GPU operations overlap with the next one of their stream and had to be cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.derive.parts.polls import POLL
from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.integrity.lost_records import EVIDENCE, OF_GPU_RECORDS, OF_STEP_TIME
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.units import in_words, percent

EARLY_NS = 20_000  # After the profiler's own correction, the clocks of host and GPU agree to a few microseconds.
EARLY_SHARE = 0.05  # Retried launches or repeated correlation ids may cause a smaller share of early operations.
MAX_CHECKED_OPERATIONS = 200_000  # Largest number of operations that are checked. More would not make their share more certain.
MIN_KERNEL_NS = 500  # An empty kernel takes 1 µs on every GPU in use.
MIN_KERNELS = 20  # With fewer kernels, or fewer events of the host, all of them may really be short.
# The 10th percentile of the durations of operators and calls is below 6 µs in each of 90 intact traces, and in most below 1 µs.
SLOWEST_NS = 30_000
FASTEST_NS = 1_000  # The 90th percentile of the durations of operators and calls is above 6 µs in each of 150 intact traces.
MIN_HOST_EVENTS = 100  # With fewer operators and calls, most of them may really be long.
# With fewer, all of them may be long. Of 170 intact traces, the shortest event takes less than 2 µs in each.
MIN_EVENTS = 5
NOTHING_SHARE = 0.01  # Share of kernels that take 0 ns. No kernel really does, so with a larger share the times are missing.
# Share of operations that were cut. With a larger share, the durations of other operations may be too long as well.
CUT_DOUBT = 0.005
FOREIGN_SHARE = 0.05  # Share of the GPU's time, the same as for operations without a launch.
MAX_HARMLESS_CUTS = 3  # Up to this many cut operations hardly change the busy share, because each was cut where it must end.
CUT_SHARE = 0.2  # Share of operations that were cut. With a larger share, durations are wrong in general.

_EARLY = f"""SELECT count(*) FILTER (g.start_ns < c.start_ns - {EARLY_NS}), count(*) FROM gpu_ops g JOIN runtime_calls c USING (call_id)
WHERE g.device = $device AND g.gpu_op_id % greatest((SELECT count(*) FROM gpu_ops) // {MAX_CHECKED_OPERATIONS}, 1) = 0"""
# A synchronization of the device waits for all work launched before it. In 165 intact traces, no operation ends after such a call
# returns, except for one that ends 8 µs later. Each operation is compared with the first such call after its launch, only in traces
# of one GPU, because the call waits for one GPU. The operation's start is compared, because a wrong duration is not a wrong clock.
_LATE = f"""WITH waits AS (SELECT c.start_ns, c.start_ns + c.dur_ns AS end_ns FROM runtime_calls c JOIN names n USING (name_id)
    WHERE regexp_matches(n.name, '^(cuda|hip)DeviceSynchronize$|^cuCtxSynchronize$')),
launched AS (SELECT c.start_ns, g.start_ns AS begins_ns FROM gpu_ops g JOIN runtime_calls c USING (call_id))
SELECT count(*) FILTER (l.begins_ns > w.end_ns + {EARLY_NS}), max(l.begins_ns - w.end_ns) FROM launched l ASOF JOIN waits w ON l.start_ns <= w.start_ns
WHERE (SELECT count(DISTINCT device) FROM gpu_ops) = 1"""
_KERNELS = "SELECT median(dur_ns) FILTER (kind = 'kernel'), count(*) FILTER (kind = 'kernel'), count(*) FROM gpu_ops WHERE device = $device"
# A trace in whole microseconds has 0 for shorter kernels, so only traces with fractions of a microsecond are checked.
_NOTHING = """SELECT count(*) FILTER (dur_ns <= 0), count(*), count(*) FILTER (dur_ns % 1000 <> 0)
FROM gpu_ops WHERE device = $device AND kind = 'kernel'"""
# A loop that asks whether an event has passed makes thousands of calls of less than a microsecond.
_HOST = f"""SELECT quantile_disc(dur_ns, 0.1), quantile_disc(dur_ns, 0.9), count(*), least(min(dur_ns), (SELECT min(dur_ns) FROM gpu_ops))
FROM (SELECT dur_ns FROM runtime_calls JOIN names n USING (name_id) WHERE NOT regexp_matches(n.name, '{POLL.pattern}')
    UNION ALL SELECT dur_ns FROM cpu_ops WHERE kind = 'op')"""
_FOREIGN = """WITH streams AS (SELECT count(*) AS operations, count(call_id) AS linked, sum(dur_ns) AS ns
    FROM gpu_ops WHERE device = $device GROUP BY stream)
SELECT coalesce(sum(operations) FILTER (linked = 0), 0), coalesce(sum(ns) FILTER (linked = 0), 0), sum(ns), sum(linked) FROM streams"""
OF_DEVICE_TIME: dict[str, Effect] = dict.fromkeys(
    ("gpu_busy_share", "gpu_idle_share", "tensor_core_time_share", "tensor_core_unknown_share", "exposed_comm_share", "sm_efficiency", "achieved_occupancy", "mfu_factor_busy", "mfu_factor_flop_kernels", "mfu_factor_efficiency"),
    "caution",
)  # fmt: skip
WITHHELD: dict[str, Effect] = dict.fromkeys((*OF_GPU_RECORDS, *OF_STEP_TIME), "unknown")
CLOCKS = "Record again with the newest driver, because the profiler uses it to map the GPU's clock to the host's."
RECORD_ALONE = "Record again while no other program uses the GPU."
UNITS = "Write durations in microseconds, as torch.profiler does, or record again."
SHORT_EVENTS = "Such events usually take a few microseconds."
WRONG_UNIT = "Probably, their unit is not microseconds."


def checks(recording: Recording, device: int) -> Iterator[FailedCheck]:
    """Yield the failed checks of the times of one device."""
    early, looked_at = recording.rows(_EARLY, {"device": device})[0]
    late_count, latest_ns = recording.rows(_LATE)[0]
    if early > EARLY_SHARE * looked_at:
        yield _disagree(early, f"{early:,} of {looked_at:,} GPU operations begin before they are launched")
    elif late_count:
        statement = f"{late_count:,} GPU operations begin up to {in_words(latest_ns / 1e6)} after the call that waited for them had returned"
        yield _disagree(late_count, statement)
    shortest, longest, events, first_start = recording.rows(_HOST)[0]
    if (events >= MIN_HOST_EVENTS and shortest > SLOWEST_NS) or (events >= MIN_EVENTS and first_start > SLOWEST_NS):
        sentence = f"Nine of ten operators and calls take more than {in_words(shortest / 1e6)}. {SHORT_EVENTS}"
        headline = f"The times are impossibly long. {WRONG_UNIT}"
        yield FailedCheck("times_too_long", events, sentence, UNITS, headline, "error", EVIDENCE, WITHHELD)
    if events >= MIN_KERNELS and longest < FASTEST_NS:
        sentence = f"Nine of ten operators and calls take at most {longest:,.0f} ns. {SHORT_EVENTS}"
        headline = f"The times are impossibly short. {WRONG_UNIT}"
        yield FailedCheck("times_too_short", events, sentence, UNITS, headline, "error", EVIDENCE, WITHHELD)
    yield from _doubtful(recording, device)
    median, kernels, operations = recording.rows(_KERNELS, {"device": device})[0]
    if kernels >= MIN_KERNELS and median < MIN_KERNEL_NS:
        sentence = f"Half of the kernels take at most {median:,.0f} ns, but even an empty kernel takes about 1,000 ns."
        headline = "The GPU's durations are impossibly short. Record again."
        yield FailedCheck("durations_too_short", kernels, sentence, UNITS, headline, "error", EVIDENCE, WITHHELD)
    cut = sum(count for (count,) in recording.rows("SELECT count FROM diagnostics WHERE key = 'overrun'"))
    if cut > CUT_SHARE * operations:
        sentence = f"{cut:,} GPU operations end after the next one of their stream begins, so their durations are wrong."
        headline = "The GPU's durations are impossibly long. Record again."
        yield FailedCheck("durations_too_long", cut, sentence, UNITS, headline, "error", EVIDENCE, WITHHELD)
    elif cut > max(CUT_DOUBT * operations, MAX_HARMLESS_CUTS):
        sentence = f"{cut:,} GPU operations were cut at the start of the next one of their stream. Other durations may be too long as well."
        yield FailedCheck("durations_too_long", cut, sentence, UNITS, effects=OF_DEVICE_TIME)


def _doubtful(recording: Recording, device: int) -> Iterator[FailedCheck]:
    """Yield the failed checks that do not concern all times of a device."""
    zero_length, kernels, fractions = recording.rows(_NOTHING, {"device": device})[0]
    if fractions and zero_length > NOTHING_SHARE * kernels:
        sentence = f"{zero_length:,} of {kernels:,} kernels take 0 ns, so their times are missing."
        effects = {key: effect for key, effect in OF_GPU_RECORDS.items() if key in OF_DEVICE_TIME}
        yield FailedCheck("durations_missing", zero_length, sentence, UNITS, evidence=("gpu_records",), effects=effects)
    foreign, foreign_ns, all_ns, linked = recording.rows(_FOREIGN, {"device": device})[0]
    if linked and foreign_ns > FOREIGN_SHARE * all_ns:
        sentence = (
            f"{foreign:,} GPU operations ({percent(foreign_ns / all_ns)} of the GPU's time) are on streams without any launch in the trace. "
            "They may belong to another process."
        )
        yield FailedCheck("foreign_streams", foreign, sentence, RECORD_ALONE, effects=OF_DEVICE_TIME)


def _disagree(count: int, statement: str) -> FailedCheck:
    headline = "The clocks of GPU and host do not agree. Record again."
    sentence = f"{statement}, so the clocks of GPU and host do not agree."
    return FailedCheck("clocks_disagree", count, sentence, CLOCKS, headline, "error", EVIDENCE, WITHHELD)
