"""What holds the loader up, by its own times or by samples of the host: in words, and how far the cores let its workers keep up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS
from sawtooth.analysis.findings.actions import followed_by
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.intervals import Intervals, intersect, union
from sawtooth.analysis.knowledge.frames import spoken
from sawtooth.analysis.metrics.feeding import cores_of, sample_cost
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.telemetry.host import HostLoad, Limit
from sawtooth.analysis.units import in_bytes, in_words
from sawtooth.ingest.loop.loading import BEYOND_CORES, Stage, pinning_limits, slowest_stage
from sawtooth.ingest.manifest import UserFacts

DECODED_ONCE = CodeChange(
    "PyTorch",
    "def __getitem__(self, i):\n    return augment(decode(self.paths[i]))",
    "def __getitem__(self, i):\n    return augment(self.decoded[i])   # decoded once, kept in memory or in few large files",
)
SENT_SMALL = CodeChange(
    "PyTorch",
    "def __getitem__(self, i):\n    return decode(self.paths[i]).float() / 255\n…\nx = x.to(device, non_blocking=True)",
    "def __getitem__(self, i):\n    return decode(self.paths[i])   # uint8: a quarter of the bytes\n…\nx = x.to(device, non_blocking=True).float() / 255",
)

VECTORISED = CodeChange(
    "PyTorch",
    'def collate(samples):\n    return torch.tensor([[f(v) for v in s["x"]] for s in samples])',
    'def collate(samples):\n    return f(torch.stack([s["x"] for s in samples]))   # tensors from __getitem__, one operation for the batch',
)
BUCKETED = CodeChange(
    "PyTorch",
    "DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=pad)",
    "order = sorted(range(len(dataset)), key=dataset.length)\nbatches = [order[i:i + 32] for i in range(0, len(order), 32)]\nrandom.shuffle(batches)\nDataLoader(dataset, batch_sampler=batches, collate_fn=pad)",
)
# Pinned blocks are kept for batches of the same size (CUDA allocates them in powers of two); a driver's call for a new one takes milliseconds.
SAME_SHAPES = "Give batches the same shape, so that pinned memory is used again."
MOSTLY_PINS = 0.5  # of the loop's waiting: then pinning is the longest of the stages before it
_WAITS = f"SELECT start_ns, start_ns + dur_ns FROM named_cpu_ops WHERE contains(name, '{LOADS_IN_WORKERS}')"
# PyTorch shows the thread's calls of the driver always, its operators only where all threads are profiled.
_PINS = f"""
WITH loop AS (SELECT DISTINCT thread_id FROM named_cpu_ops WHERE contains(name, '{LOADS_IN_WORKERS}')),
pins AS (
    SELECT thread_id, start_ns, dur_ns FROM named_runtime_calls WHERE regexp_matches(name, '^(cuda|hip)Host(Alloc|Malloc|Register)')
    UNION ALL SELECT thread_id, start_ns, dur_ns FROM named_cpu_ops WHERE name IN ('aten::pin_memory', 'aten::_pin_memory'))
SELECT start_ns, start_ns + dur_ns FROM pins ANTI JOIN loop USING (thread_id)"""
MUCH_PADDING = 0.2  # of a batch: sorting by length brings at most this share of collating, pinning and computing
CHEAPER_SAMPLE = Action(
    "Make", "a sample cheaper", ": decode smaller images, cache what is decoded, read fewer and larger files."
)
VECTORISE = Action("Vectorise", "the collate function", ": one operation for the whole batch, not one for each element.")
FEWER_BYTES = " (uint8 instead of float32, smaller images), and convert them on the GPU"
ONE_THREAD_PINS = Action(
    "Send",
    "fewer bytes",
    f"{FEWER_BYTES}: one thread of the training pins what all workers load, so that more of them bring nothing.",
)
PINS_ALONE = Action("Set", "pin_memory=False", f", or send fewer bytes{FEWER_BYTES}.")
ASK_FOR_CORES = Action("Ask", "for more cores", ", or stop what else computes on these.")
SHARED_CORES = 0.6  # of its speed a worker keeps on one of the two threads of a core, as `cores` counts them
SHARE_HALVINGS = 7  # of the loader's wait: to within 1 % of it


def pins_too_slowly(facts: UserFacts) -> bool:
    """Tell whether the one thread that pins the workers' batches is what limits them, as they were timed."""
    cost = sample_cost(facts)
    return cost is not None and pinning_limits(cost, int(facts.loader_workers or 0), cores_of(facts))


def stage_of(facts: UserFacts) -> Stage | None:
    """Return the stage of loading that limits a batch; None where the loader was not timed."""
    cost = sample_cost(facts)
    return slowest_stage(cost, int(facts.loader_workers or 0), cores_of(facts)) if cost is not None else None


def cheaper_batch(facts: UserFacts) -> CodeChange:
    """Return the change that makes the slowest stage of loading cheaper."""
    match stage_of(facts):
        case "pinning":
            return SENT_SMALL
        case "collate":
            return BUCKETED if (facts.loader_padding or 0.0) >= MUCH_PADDING else VECTORISED
        case _:
            return DECODED_ONCE


def cheaper_advice(facts: UserFacts) -> Action:
    """Return the advice that makes the slowest stage of loading cheaper."""
    match stage_of(facts):
        case "pinning":
            return followed_by(ONE_THREAD_PINS if facts.loader_workers else PINS_ALONE, _grouped(facts))
        case "collate":
            return followed_by(VECTORISE, _grouped(facts))
        case _:
            return CHEAPER_SAMPLE


def pinning_limit(context: RuleContext) -> tuple[str, Action] | None:
    """Return what ``limited_by`` does where the pinning thread is the limit, by its times or as the trace shows it: at work for most of the loop's waiting."""
    if pins_too_slowly(context.run.manifest.facts):
        return limited_by(context.run.manifest.facts)
    waits = context.recording.rows(_WAITS)
    if not waits:
        return None
    waiting = _union(waits)
    pinning = intersect(waiting, _union(context.recording.rows(_PINS)))
    if pinning.total < MOSTLY_PINS * waiting.total:
        return None
    pins_ms, waits_ms = (in_words(part.total / len(waits) / 1e6) for part in (pinning, waiting))
    return (
        f": one thread pins the batches of all of them, in {pins_ms} of each {waits_ms} wait",
        followed_by(ONE_THREAD_PINS, SAME_SHAPES),
    )


def _union(rows: Sequence[tuple[int, int]]) -> Intervals:
    return union([start for start, _ in rows], [end for _, end in rows])


def limited_by(facts: UserFacts, host: HostLoad | None = None) -> tuple[str, Action] | None:
    """Return how a title ends that names the stage that limits the loader, and what to do; None where it was not timed or nothing stands out."""
    cost, workers = sample_cost(facts), int(facts.loader_workers or 0)
    stage = stage_of(facts)
    if cost is None:
        return None
    if stage == "pinning":
        took = in_words(1e3 * cost.pin_s)
        held_up = (
            f"one thread pins the batches of all of them, {took} each"
            if workers
            else f"pinning a batch takes {took}, more than making it"
        )
        return f": {held_up}", cheaper_advice(facts)
    if stage == "collate":
        whole_ms = 1e3 * (cost.batch * cost.wall_s + cost.collate_s + (0.0 if workers else cost.pin_s))
        more = "More workers collate more batches at the same time." if workers else ""
        return (
            f": collating takes {in_words(1e3 * cost.collate_s)} of a batch's {in_words(whole_ms)}{_at(facts.loader_collate_code)}",
            followed_by(cheaper_advice(facts), more),
        )
    if cost.limit is None:
        return None
    if cost.limit == "waiting" and host is not None and (no_core := host.without_a_free_core()) is not None:
        return f": {no_core}", ASK_FOR_CORES
    if cost.limit == "waiting":
        return (
            f": a sample waits {100 * (1 - cost.computes):.0f} % of its time, for a disk, a network, a lock or a core that others use{_at(facts.loader_sample_code)}",
            Action(
                "Give",
                "the loader more workers",
                ", so that more samples wait at the same time. Then read fewer and larger files (WebDataset), or from a local disk; cheaper decoding brings nothing.",
            ),
        )
    return (
        f": a sample computes {100 * cost.computes:.0f} % of its time{_at(facts.loader_sample_code)}",
        Action(
            "Give",
            "the loader more workers",
            ", up to the cores, or make a sample cheaper: decode smaller images, cache what is decoded, decode on the GPU (DALI).",
        ),
    )


def _at(place: str | None) -> str:
    return f" ({spoken(place)})" if place else ""


def _grouped(facts: UserFacts) -> str:
    """Return a sentence on padding, where there is much of it."""
    share = facts.loader_padding or 0.0
    if share < MUCH_PADDING:
        return ""
    return f"{100 * share:.0f} % of a batch is padding: use a batch sampler that groups samples of similar length."


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
        return (cheaper_batch(facts),)
    cost = sample_cost(facts)
    seen = int((host.means.get("workers") if host is not None else None) or facts.loader_workers or 0)
    cores = int((host.means.get("cores") if host is not None else None) or facts.loader_cores or 2 * seen)
    most = BEYOND_CORES * cores if cost is not None and cost.limit == "waiting" else cores
    if limit not in (None, "worker") or (seen and seen >= most):
        return (cheaper_batch(facts),)
    return tuple(_with_workers(change, seen, min(2 * seen, most)) for change in changes)


def _with_workers(change: CodeChange, seen: int, use: int) -> CodeChange:
    """Return a change of a loader's workers with ``use`` of them after it, and those ``seen`` before; the usual ones where none was seen."""
    if not seen:
        return change.filled()
    names = {"workers": str(use)} | ({"seen": f", num_workers={seen}"} if change.framework == "PyTorch" else {})
    return replace(change.filled(**names), of_run="seen" in names)
