"""What holds the loader's workers up, by samples of the host: in words, and how far its cores let them keep up with the training."""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.queries.loading import DECODED_ONCE, SENT_SMALL, pins_too_slowly
from sawtooth.analysis.metrics.feeding import sample_cost
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.telemetry.host import HostLoad, Limit
from sawtooth.analysis.units import in_bytes, in_words
from sawtooth.ingest.loop.loading import BEYOND_CORES

SHARED_CORES = 0.6  # of its speed a worker keeps on one of the two threads of a core, as `cores` counts them
SHARE_HALVINGS = 7  # of the loader's wait: to within 1 % of it


def kept_up(context: RuleContext, host: HostLoad | None) -> tuple[list[Edit], str]:
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


def held_up_by(host: HostLoad, limit: Limit) -> tuple[str, Action]:
    """Return what holds the workers up, to end the title with, and what to do."""
    cpu, worker, cores = host.cpu_pct or 0.0, host.means.get("workers_cpu_pct", 0.0), host.means.get("cores", 0.0)
    read = in_bytes(host.means.get("disk_read_bps", 0.0))
    received = in_bytes(host.means.get("network_received_bps", 0.0))
    match limit:
        case "cores":
            return (
                f"; all {cores:.0f} cores that it may use are busy ({cpu:.0f} %)",
                Action(
                    "Make",
                    "a sample cheaper",
                    ": decode smaller images, cache what is decoded, decode on the GPU (DALI). More workers only take turns on these cores.",
                ),
            )
        case "worker":
            return (
                f": they compute, {worker:.0f} % of a core each, while {100 - cpu:.0f} % of the cores are free",
                Action(
                    "Give",
                    "the loader more workers",
                    f": {host.means.get('workers', 0.0):.0f} of them work on {cores:.0f} cores. Then make a sample cheaper.",
                ),
            )
        case "disk":
            return (
                f": they wait for the disk, which gives {read} a second, and compute {worker:.0f} % of the time",
                Action(
                    "Read",
                    "fewer and larger files",
                    " (WebDataset, tar or record files), from a faster or a local disk, or keep the data in memory. Cheaper decoding brings nothing.",
                ),
            )
        case _:  # "elsewhere"
            return (
                f": they compute {worker:.0f} % of the time and wait for the rest, though no disk is busy; {received} a second come over the network",
                Action(
                    "Find",
                    "what the workers wait for",
                    ": a network file system, a lock, a pause. Read larger pieces ahead, or copy the data to a local disk first.",
                ),
            )


def with_more(context: RuleContext, changes: tuple[CodeChange, ...], limit: Limit | None = None) -> tuple[CodeChange, ...]:
    """Return ``changes`` with twice as many workers as the loader has, in their slots ``$workers`` and ``$seen``.

    Where something else holds the workers up, or each core has one already that does not wait, the change makes a sample cheaper instead.
    """
    host, facts = context.run.telemetry.host, context.run.manifest.facts
    if pins_too_slowly(facts):
        return (SENT_SMALL,)
    cost = sample_cost(facts)
    seen = int((host.means.get("workers") if host is not None else None) or facts.loader_workers or 0)
    cores = int((host.means.get("cores") if host is not None else None) or facts.loader_cores or 2 * seen)
    most = BEYOND_CORES * cores if cost is not None and cost.limit == "waiting" else cores
    if limit not in (None, "worker") or (seen and seen >= most):
        return (DECODED_ONCE,)
    return tuple(_with_workers(change, seen, min(2 * seen, most)) for change in changes)


def _with_workers(change: CodeChange, seen: int, use: int) -> CodeChange:
    """Return a change of a loader's workers with ``use`` of them after it, and those ``seen`` before; the usual ones where none was seen."""
    if not seen:
        return change.filled()
    names = {"workers": str(use)} | ({"seen": f", num_workers={seen}"} if change.framework == "PyTorch" else {})
    return replace(change.filled(**names), of_run="seen" in names)
