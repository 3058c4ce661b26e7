"""The profiled steps read their data for the first time.

What it checks
    How many bytes the loader's processes read in the first epoch, as the kernel counts them. There is a finding if at least half
    of these bytes came from disk and the training waits for the loader. Also, later epochs must have come from memory, or the
    whole dataset must fit into the memory that was free for files.
Why it costs time
    The first read of a file comes from disk or over the network. Later reads come from memory (the page cache), if the file
    fits.
What to do
    Do not change the loader because of a first epoch. Record an epoch that comes from memory. If the first epoch matters, read
    the files ahead.
When it is wrong
    Other programs fill the memory before the second epoch, or the files are compressed or on a file system without a cache.
    Memory-mapped files (np.memmap) are not counted.
References
    https://docs.kernel.org/filesystems/proc.html (/proc/PID/io: rchar and read_bytes)
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Row, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.loading import loader_may_limit, profiles_first_read
from sawtooth.analysis.metrics.loader_rate import first_read_of, sample_cost, workers_time
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_bytes, in_words
from sawtooth.ingest.loop.page_cache import FirstRead

MIN_DISK_SHARE = 0.5  # Of all bytes read. With a smaller share, most batches come from memory.
MAX_MEMORY_SHARE = 0.8  # Of the memory that was free for files. The training uses the rest later.
COMPUTING_LIMITS = ("cores", "worker")  # With these limits of the loader, no worker waits for a disk.
NOT_PREDICTED = "Not predicted: no batch of this recording came from memory, so the time of such a batch is unknown."
MEASURED_NOTE = "Measured in the later epochs, to which most of the run's steps belong."
CHANGES = (
    CodeChange("sawtooth run", "sawtooth run python train.py", "sawtooth run --after 600 python train.py   # seconds: past the first epoch"),
    CodeChange("before the training", "python train.py", "find data/ -type f -exec cat {} + > /dev/null   # reads the files ahead, once\npython train.py"),
)  # fmt: skip


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if profiled steps wait for data that is read from disk only once."""
    first = first_read_of(context.run.manifest.facts)
    if first is None or first.disk_share < MIN_DISK_SHARE:
        return
    lost_ms = context.lost_ms("data_wait")
    if first.is_over:
        if profiles_first_read(context) and context.share(lost_ms) >= FEW_LINES_TO_CHANGE.share:
            yield _evidence_of_later_epochs(context, first)
    elif first.later_share is None and _fits_into_memory(first) and _waits_for_disk(context, lost_ms):
        yield _evidence_of_first_epoch(context, first, lost_ms)


def _fits_into_memory(first: FirstRead) -> bool:
    return first.samples * first.sample_bytes <= MAX_MEMORY_SHARE * first.room_bytes


def _waits_for_disk(context: RuleContext, lost_ms: float) -> bool:
    """Return whether the step waits for the loader, and the loader does not wait for cores."""
    facts, host = context.run.manifest.facts, context.run.telemetry.host
    cost, loading = sample_cost(facts), workers_time(facts)
    if cost is None or cost.limit == "computing" or (host is not None and host.limit_of_loader() in COMPUTING_LIMITS):
        return False
    if context.share(lost_ms) >= FEW_LINES_TO_CHANGE.share:
        return True
    return loading is not None and context.step_ms is not None and loading.limits(context.step_ms) and loader_may_limit(context)


def _disk_share_clause(first: FirstRead) -> str:
    return f"{100 * first.disk_share:.0f} % of what the loader read was not in the page cache"


def _evidence_of_later_epochs(context: RuleContext, first: FirstRead) -> Evidence:
    """Return the finding of a run whose first epoch is over, with the loader's time in the later epochs."""
    loading, cost = workers_time(context.run.manifest.facts), sample_cost(context.run.manifest.facts)
    times_clause = (
        f"a sample takes {in_words(1e3 * cost.wall_s)} instead of {in_words(1e3 * first.sample_s)}" if cost is not None else ""
    )
    if loading is not None:
        times_clause = f"{loading.workers} workers take {in_words(loading.ms)} for a batch ({in_words(loading.low_ms)} to {in_words(loading.high_ms)}): {times_clause}"
    return Evidence(
        Advice(
            f"The profiled steps wait for the disk, but later steps do not: {_disk_share_clause(first)} in the first epoch",
            Action(
                "Record",
                "a later epoch before changing the loader",
                f": from the second epoch on, batches come from memory, and {times_clause}.",
                records_again=True,
            ),
            note=MEASURED_NOTE,
            risk="A job with a single epoch reads all its data from the disk.",
            changes=CHANGES[:1],
        ),
        confidence="high",
        severity="info",
        rows=_rows(context, first),
    )


def _evidence_of_first_epoch(context: RuleContext, first: FirstRead, lost_ms: float) -> Evidence:
    """Return the finding of a run that ended within its first epoch."""
    dataset_size, free_memory = in_bytes(first.samples * first.sample_bytes), in_bytes(first.room_bytes)
    return Evidence(
        Advice(
            f"These batches come from the disk: {_disk_share_clause(first)}, and {dataset_size} of data fit into {free_memory} of free memory",
            Action(
                "Record",
                "a later epoch before changing the loader",
                ": from the second epoch on, batches come from memory, as long as nothing else fills this memory. If the first epoch matters, read the files ahead.",
                records_again=True,
            ),
            note=NOT_PREDICTED,
            risk="If other programs or jobs need this memory, every epoch reads from the disk.",
            changes=CHANGES,
        ),
        lost_ms=lost_ms or None,
        rows=_rows(context, first),
    )


def _rows(context: RuleContext, first: FirstRead) -> list[Row]:
    host = context.run.telemetry.host
    counted = {
        "not in the page cache, %": round(100 * first.disk_share, 1),
        "in later epochs, %": round(100 * first.later_share, 1) if first.later_share is not None else None,
        "a sample reads": in_bytes(first.sample_bytes),
        "samples": first.samples,
        "memory free for files": in_bytes(first.room_bytes),
    }
    sampled = host.evidence("disk_read_bps", "disk_busy_pct", "workers_blocked_pct") if host is not None else []
    return [{key: value for key, value in counted.items() if value is not None}, *sampled, *context.gap_evidence("data_wait")]


RULE = Rule(
    "slow-first-read",
    measure,
    reads=TRACE_SOURCES | {"loader_timing"},
    explains=Explains(("data_wait",)),
    requires=("steps", "reads"),
    threshold=FEW_LINES_TO_CHANGE,
    part_of="data-loader-starves-gpu",
)
