"""The data loader starves the GPU.

What it checks
    Idle time of the steady window in which the launching thread is inside the DataLoader's ``next`` (cause ``data_wait``). Whether the
    loader works in the training process (``_SingleProcessDataLoaderIter``) or in workers tells which change comes first.
Why it costs time
    The GPU has finished the step and the next batch is not there. With ``num_workers=0`` every sample is read, decoded and augmented
    between two steps; with too few workers the step waits for the slowest of them.
What to do
    Load in worker processes, enough that together they are faster than the step; keep them alive between epochs; pin memory so that the
    copy to the GPU overlaps.
When it is wrong
    When the storage or the network is the limit, more workers only queue there; telemetry with samples of the host tells. When the profiled steps
    emptied a full prefetch queue, the wait is missing from the trace; telemetry then shows it.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.loading import limited_by, workers_needed
from sawtooth.analysis.findings.queries import in_bytes
from sawtooth.analysis.findings.rule import Rule, RuleContext, in_words
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.telemetry import HostLoad, Limit

WORTH_NAMING = 0.02  # a loader that costs less than 2 % of the step is within the noise of most step times
SHARED_CORES = 0.6  # of its speed a worker keeps on one of the two threads of a core, as `cores` counts them
SHARE_HALVINGS = 7  # of the loader's wait: to within 1 % of it
FEW_WORKERS = "Give the loader more workers and a deeper prefetch, or make a sample cheaper: decode smaller images, cache what is decoded."
SEVERAL = "Load data in worker processes: start with as many as there are CPU cores for each GPU, pinned memory and persistent workers."
SINGLE_PROCESS = "_SingleProcessDataLoaderIter"

CHANGES = (
    CodeChange(
        "PyTorch",
        "loader = DataLoader(dataset, batch_size=64)",
        "loader = DataLoader(dataset, batch_size=64, num_workers=8, pin_memory=True,\n                    persistent_workers=True, prefetch_factor=4)",
    ),
    CodeChange(
        "Lightning",
        "DataLoader(dataset, batch_size=64)",
        "DataLoader(dataset, batch_size=64, num_workers=8, persistent_workers=True)",
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(...)",
        "TrainingArguments(..., dataloader_num_workers=8, dataloader_persistent_workers=True, dataloader_prefetch_factor=4)",
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when the loader costs more than WORTH_NAMING of the step."""
    lost = context.lost_ms("data_wait")
    if context.share(lost) < WORTH_NAMING:
        return
    single = bool(context.recording.rows("SELECT 1 FROM names WHERE contains(name, ?) LIMIT 1", [SINGLE_PROCESS]))
    where = "in the training process itself (num_workers=0)" if single else "in its worker processes"
    host = context.run.telemetry.host
    limit = host.limit_of_loader() if host is not None and not single else None
    timed = limited_by(context.run.manifest.facts)  # a short recording has few samples of the host
    limited, fix = _limited(host, limit) if host is not None and limit is not None else timed or ("", FEW_WORKERS)
    if single:
        fix = SEVERAL
    edits, bounded = _kept_up(context, host if limit == "worker" else None)
    needed = workers_needed(context.run.manifest.facts, context.predict_ms([WithoutHostCause("data_wait")]))
    yield context.finding(
        RULE.slug,
        f"The GPU waits {in_words(lost)} of each step for the data loader, which works {where}{limited}",
        f"{fix} {needed}".rstrip(),
        ceiling_ms=lost,
        edits=edits,
        confidence="high" if single or limit or timed else "medium",
        note=f"The loader's wait removed from the replay: what is left when it always keeps up.{bounded}",
        risk="Each worker holds its own copy of the dataset object; a dataset kept in Python lists multiplies the host's memory.",
        changes=CHANGES,
        evidence=context.gap_evidence("data_wait"),
    )


def _kept_up(context: RuleContext, host: HostLoad | None) -> tuple[list[Edit], str]:
    """Return the edit by which the loader keeps up as far as the host's cores let it, and the sentence that says how far, empty where they do.

    ``host`` is given where the workers compute all the time: what they compute for a step, over all cores, is the least that a batch then takes.
    """
    step, free = context.step_ms, context.predict_ms([WithoutHostCause("data_wait")])
    workers, cores, busy = (host.means.get(key, 0.0) if host else 0.0 for key in ("workers", "cores", "workers_cpu_pct"))
    if not step or free is None or step <= free or not workers or not cores:
        return [WithoutHostCause("data_wait")], ""
    core_ms = step * workers * busy / 100
    kept, most = (_kept_share(context, core_ms / cores / share) for share in (1.0, SHARED_CORES))
    if not most:
        return [WithoutHostCause("data_wait")], ""
    bound = f" A step's samples take {in_words(core_ms)} of a core: {cores:.0f} cores need {in_words(core_ms / cores)}, and {in_words(core_ms / cores / SHARED_CORES)} where two share one."
    return [WithoutHostCause("data_wait", kept, None, most)], bound


def _kept_share(context: RuleContext, wanted_ms: float) -> float:
    """Return the share of the loader's wait with which a step takes ``wanted_ms``, 0 where it takes that without."""
    return turning_point(
        lambda share: (context.predict_ms([WithoutHostCause("data_wait", share)]) or 0.0) <= wanted_ms,
        0.0,
        1.0,
        halvings=SHARE_HALVINGS,
    )[0]


def _limited(host: HostLoad, limit: Limit) -> tuple[str, str]:
    """Return what holds the workers up, to end the title with, and what to do."""
    cpu, worker, cores = (host.means.get(column, 0.0) for column in ("cpu_pct", "workers_cpu_pct", "cores"))
    read = in_bytes(host.means.get("disk_read_bps", 0.0))
    received = in_bytes(host.means.get("network_received_bps", 0.0))
    match limit:
        case "cores":
            return (
                f"; all {cores:.0f} cores of the host are busy ({cpu:.0f} %)",
                "Make a sample cheaper: decode smaller images, cache what is decoded, decode on the GPU (DALI). More workers only take turns on these cores.",
            )
        case "worker":
            return (
                f": they compute, {worker:.0f} % of a core each, while {100 - cpu:.0f} % of the host's cores are free",
                f"Give the loader more workers: {host.means.get('workers', 0.0):.0f} of them work on {cores:.0f} cores. Then make a sample cheaper.",
            )
        case "disk":
            return (
                f": they wait for the disk, which gives {read} a second, and compute {worker:.0f} % of the time",
                "Read fewer and larger files (WebDataset, tar or record files), from a faster or a local disk, or keep the data in memory. Cheaper decoding brings nothing.",
            )
        case _:  # "elsewhere"
            return (
                f": they compute {worker:.0f} % of the time and wait for the rest, though no disk is busy; {received} a second come over the network",
                "Find what the workers wait for: a network file system, a lock, a pause. Read larger pieces ahead, or copy the data to a local disk first.",
            )


RULE = Rule("data-loader-starves-gpu", ("steps",), check, Explains(("data_wait",)))
