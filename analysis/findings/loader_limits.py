"""The stage that limits the data loader, by measured times or by samples of the host, and the advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS
from sawtooth.analysis.findings.actions import with_more_advice
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.intervals import intersect, union
from sawtooth.analysis.knowledge.frames import readable_frame
from sawtooth.analysis.metrics.loader_rate import cores_of, sample_cost
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.telemetry.host import HostLoad, Limit
from sawtooth.analysis.units import in_bytes, in_words
from sawtooth.ingest.loop.loading import Stage, pinning_limits, slowest_stage
from sawtooth.ingest.manifest import UserFacts

DECODED_ONCE = CodeChange(
    "PyTorch",
    "def __getitem__(self, i):\n    return augment(decode(self.paths[i]))",
    "def __getitem__(self, i):\n    return augment(self.decoded[i])   # decoded once, stored in memory or in few large files",
)
SENT_SMALL = CodeChange(
    "PyTorch",
    "def __getitem__(self, i):\n    return decode(self.paths[i]).float() / 255\n# in the loop\nx = x.to(device, non_blocking=True)",
    "def __getitem__(self, i):\n    return decode(self.paths[i])   # uint8: a quarter of the bytes\n# in the loop\nx = x.to(device, non_blocking=True).float() / 255",
)
VECTORISED = CodeChange(
    "PyTorch",
    'def collate(samples):\n    return torch.tensor([[f(v) for v in s["x"]] for s in samples])',
    'def collate(samples):\n    return f(torch.stack([s["x"] for s in samples]))   # tensors from __getitem__, one operation for the batch',
)
BUCKETED = CodeChange(
    "PyTorch",
    "DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=pad)",
    "order = sorted(range(len(dataset)), key=lambda i: len(dataset[i]))\nbatches = [order[i:i + 32] for i in range(0, len(order), 32)]\nrandom.shuffle(batches)\nDataLoader(dataset, batch_sampler=batches, collate_fn=pad)",
)
# PyTorch reuses a pinned block for a later batch of the same size. The driver needs milliseconds to allocate a new block.
SAME_SHAPES = "Give batches the same shape, so that pinned memory is reused."
# Speed at which one thread of the training receives, pins and frees the batches of all workers. Measured: 2.8 GB/s on the host
# of an H100, and 157 MB in 53.6 ms on the host of an H200.
THREAD_BYTES_PER_NS = 2.9
ALLOCATION_FACTOR = 3.0  # If pinning is this many times slower than THREAD_BYTES_PER_NS, allocation takes most of the time.
# Share of the loop's waits during which the pinning thread works. If the share is larger, pinning is the limit.
MIN_PINNING_SHARE = 0.5
_WAITS = f"SELECT start_ns, start_ns + dur_ns FROM named_cpu_ops WHERE contains(name, '{LOADS_IN_WORKERS}')"
# A trace always contains the driver calls of the pinning thread, but its operators only if all threads are profiled.
_PINS = f"""
WITH loop AS (SELECT DISTINCT thread_id FROM named_cpu_ops WHERE contains(name, '{LOADS_IN_WORKERS}')),
pins AS (
    SELECT thread_id, start_ns, dur_ns FROM named_runtime_calls WHERE regexp_matches(name, '^(cuda|hip)Host(Alloc|Malloc|Register)')
    UNION ALL SELECT thread_id, start_ns, dur_ns FROM named_cpu_ops WHERE name IN ('aten::pin_memory', 'aten::_pin_memory'))
SELECT start_ns, start_ns + dur_ns FROM pins ANTI JOIN loop USING (thread_id)"""
# Share of a batch. If samples are sorted by length, at most this share of collating, pinning and computing is saved.
MUCH_PADDING = 0.2
CHEAPER_SAMPLE = Action(
    "Make", "a sample cheaper", ": decode smaller images, cache decoded samples, read fewer and larger files."
)
CHEAPER_COMPUTATION = Action(
    "Make",
    "a sample cheaper",
    ": decode smaller images, cache decoded samples, decode on the GPU (DALI). More workers would only share these cores.",
)
VECTORISE = Action("Vectorise", "the collate function", ": use one operation for the whole batch, not one for each element.")
FEWER_BYTES = " (uint8 instead of float32, smaller images), and convert them on the GPU"
ONE_THREAD_PINS = Action(
    "Send",
    "fewer bytes",
    f"{FEWER_BYTES}. One thread of the training pins the batches of all workers, so more workers do not help.",
)
AVOID_ALLOCATION = Action(
    "Set",
    "pin_memory=False",
    ", or copy each batch into a pinned buffer that is allocated only once. Allocating pinned memory takes most of the time, not copying. More workers do not help.",
)
UNPINNED = CodeChange(
    "PyTorch",
    "DataLoader(dataset, …, pin_memory=True)",
    "DataLoader(dataset, …)   # a pageable copy of a small batch takes less time than allocating pinned memory",
)
PIN_LESS = Action("Set", "pin_memory=False", f", or send fewer bytes{FEWER_BYTES}.")
ASK_FOR_CORES = Action("Ask", "for more cores", ", or stop other programs that use these cores.")
MIN_CORE_WAIT_PCT = 25.0  # Cores limit the loading thread only if it waits for one for at least this share of the time.
SHARED_CORE_SPEED = 0.6  # Relative speed of a worker if two workers share the two hardware threads of a core.
SHARE_HALVINGS = 7  # Steps of the bisection in ``_remaining_share``, for a precision of 1 % of the wait.


def pins_too_slowly(facts: UserFacts) -> bool:
    """Return whether the single pinning thread limits the workers, by their measured times."""
    cost = sample_cost(facts)
    return cost is not None and pinning_limits(cost, int(facts.loader_workers or 0), cores_of(facts))


def limiting_stage(facts: UserFacts) -> Stage | None:
    """Return the stage of loading that limits a batch; None if the loader was not timed."""
    cost = sample_cost(facts)
    return slowest_stage(cost, int(facts.loader_workers or 0), cores_of(facts)) if cost is not None else None


def cheaper_batch_change(facts: UserFacts) -> CodeChange:
    """Return the code change that makes the slowest stage of loading cheaper."""
    match limiting_stage(facts):
        case "pinning":
            return SENT_SMALL
        case "collate":
            return BUCKETED if (facts.loader_padding or 0.0) >= MUCH_PADDING else VECTORISED
        case _:
            return DECODED_ONCE


def cheaper_advice(facts: UserFacts) -> Action:
    """Return the advice that makes the slowest stage of loading cheaper."""
    match limiting_stage(facts):
        case "pinning":
            return with_more_advice(ONE_THREAD_PINS if facts.loader_workers else PIN_LESS, _advice_on_padding(facts))
        case "collate":
            return with_more_advice(VECTORISE, _advice_on_padding(facts))
        case _:
            return CHEAPER_SAMPLE


@dataclass(frozen=True)
class PinningLimit:
    """How the pinning thread limits the loader: the end of a title, the advice and the code change."""

    limit_clause: str
    action: Action
    change: CodeChange


def pinning_limit(context: RuleContext) -> PinningLimit | None:
    """Return how the pinning thread limits the loader, by its times or else by the trace; else None."""
    facts = context.run.manifest.facts
    waits = context.recording.rows(_WAITS)
    waiting = union(*_starts_and_ends(waits))
    pinning = intersect(waiting, union(*_starts_and_ends(context.recording.rows(_PINS))))
    if (cost := sample_cost(facts)) is not None and pins_too_slowly(facts) and (limit := loader_limit(facts)) is not None:
        pin_ms, limit_clause, action = 1e3 * cost.pin_s, *limit
    elif waits and pinning.total >= MIN_PINNING_SHARE * waiting.total:
        pin_ms, waits_ms = (part.total / len(waits) / 1e6 for part in (pinning, waiting))
        limit_clause = (
            f": one thread pins the batches of all workers, during {in_words(pin_ms)} of each {in_words(waits_ms)} wait"
        )
        action = with_more_advice(ONE_THREAD_PINS, SAME_SHAPES)
    else:
        return None
    if pin_ms > ALLOCATION_FACTOR * _batch_bytes(context) / THREAD_BYTES_PER_NS / 1e6:
        return PinningLimit(limit_clause, with_more_advice(AVOID_ALLOCATION, SAME_SHAPES), UNPINNED)
    return PinningLimit(limit_clause, action, SENT_SMALL)


def _batch_bytes(context: RuleContext) -> float:
    """Return the bytes that a counted step copies to the GPU; infinity if the trace does not show them."""
    ((size,),) = context.recording.rows(
        "SELECT sum(bytes) FROM step_gpu_ops WHERE device = ? AND counted AND kind = 'memcpy' "
        "AND regexp_matches(name, '(?i)HtoD|HostToDevice')",
        [context.rank.device],
    )
    return float(size) / max(len(context.rank.counted), 1) if size else math.inf


def _starts_and_ends(rows: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [start for start, _ in rows], [end for _, end in rows]


def loader_limit(facts: UserFacts, host: HostLoad | None = None) -> tuple[str, Action] | None:
    """Return the end of a title about the stage that limits the loader, and the advice.

    None if the loader was not timed, or if no stage takes most of the time. ``host`` shows whether cores are free.
    """
    cost, workers = sample_cost(facts), int(facts.loader_workers or 0)
    stage = limiting_stage(facts)
    if cost is None:
        return None
    if stage == "pinning":
        time = in_words(1e3 * cost.pin_s)
        limit = f"one thread pins the batches of all workers, {time} per batch" if workers else f"pinning a batch takes {time}"
        return f": {limit}", cheaper_advice(facts)
    if stage == "collate":
        whole_ms = 1e3 * (cost.batch * cost.wall_s + cost.collate_s + (0.0 if workers else cost.pin_s))
        advice_on_workers = "More workers collate more batches at the same time." if workers else ""
        return (
            f": collating takes {in_words(1e3 * cost.collate_s)} of the {in_words(whole_ms)} for a batch{_place_note(facts.loader_collate_code)}",
            with_more_advice(cheaper_advice(facts), advice_on_workers),
        )
    if cost.limit is None:
        return None
    if cost.limit == "waiting":
        # Without workers, the main thread loads. Cores limit this thread only if it often waits for a core.
        needs_cores = host is not None and (workers > 0 or host.means.get("main_waits_pct", 100.0) >= MIN_CORE_WAIT_PCT)
        if host is not None and needs_cores and (no_core := host.without_a_free_core()) is not None:
            return f": {no_core}", ASK_FOR_CORES
        return (
            f": a sample waits for {100 * (1 - cost.computes):.0f} % of its time (for a disk, a network, a lock or a busy core){_place_note(facts.loader_sample_code)}",
            Action(
                "Give",
                "the loader more workers",
                ", so that more samples wait at the same time. Then read fewer and larger files (WebDataset), or read from a local disk. Cheaper decoding does not help.",
            ),
        )
    return (
        f": a sample computes for {100 * cost.computes:.0f} % of its time{_place_note(facts.loader_sample_code)}",
        Action(
            "Give",
            "the loader more workers",
            ", up to the number of cores, or reduce the work per sample: decode smaller images, cache decoded samples, or decode on the GPU (DALI).",
        ),
    )


def _place_note(place: str | None) -> str:
    return f" ({readable_frame(place)})" if place else ""


def _advice_on_padding(facts: UserFacts) -> str:
    """Return the advice to group samples by length; empty if batches have little padding."""
    share = facts.loader_padding or 0.0
    if share < MUCH_PADDING:
        return ""
    return f"{100 * share:.0f} % of a batch is padding: use a batch sampler that groups samples of similar length."


def loader_keeps_up(context: RuleContext, host: HostLoad | None) -> tuple[list[Edit], str]:
    """Return the edit that removes the waits for the loader, as far as the host's cores allow.

    Also return a sentence about the cores' limit, empty if there is none. ``host`` is only set if the workers compute all the
    time. The shortest time per batch is then the workers' computation per step divided by the number of cores.
    """
    step_ms, without_waits_ms = context.step_ms, context.predict_ms([WithoutHostCause("data_wait")])
    workers, cores, busy_pct = (host.means.get(key, 0.0) if host else 0.0 for key in ("workers", "cores", "workers_cpu_pct"))
    if not step_ms or without_waits_ms is None or step_ms <= without_waits_ms or not workers or not cores:
        return [WithoutHostCause("data_wait")], ""
    on_one_core_ms = step_ms * workers * busy_pct / 100
    least_ms, shared_ms = on_one_core_ms / cores, on_one_core_ms / cores / SHARED_CORE_SPEED
    least_share, shared_share = (_remaining_share(context, target_ms) for target_ms in (least_ms, shared_ms))
    if not shared_share:
        return [WithoutHostCause("data_wait")], ""
    limit_note = f" The samples of a step take {in_words(on_one_core_ms)} on one core, so {cores:.0f} cores need {in_words(least_ms)}, or {in_words(shared_ms)} if two of the cores are hardware threads of one physical core."
    return [WithoutHostCause("data_wait", least_share, None, shared_share)], limit_note


def _remaining_share(context: RuleContext, target_ms: float) -> float:
    """Return the share of the loader's wait that remains in a step of ``target_ms``; 0 if none remains."""
    return turning_point(
        lambda share: (context.predict_ms([WithoutHostCause("data_wait", share)]) or 0.0) <= target_ms,
        0.0,
        1.0,
        halvings=SHARE_HALVINGS,
    )[0]


def host_limit_words(host: HostLoad, limit: Limit) -> tuple[str, Action]:
    """Return the end of a title about the workers' limit, and the advice."""
    cpu_pct, worker_pct, cores = host.cpu_pct or 0.0, host.means.get("workers_cpu_pct", 0.0), host.means.get("cores", 0.0)
    disk_read = in_bytes(host.means.get("disk_read_bps", 0.0))
    received = in_bytes(host.means.get("network_received_bps", 0.0))
    match limit:
        case "cores":
            return (
                f"; all {cores:.0f} cores that the training may use are busy ({cpu_pct:.0f} %)",
                CHEAPER_COMPUTATION,
            )
        case "worker":
            return (
                f": each worker computes for {worker_pct:.0f} % of the time, while {100 - cpu_pct:.0f} % of the cores are free",
                Action(
                    "Give",
                    "the loader more workers",
                    f": {host.means.get('workers', 0.0):.0f} workers use {cores:.0f} cores. Then reduce the work per sample.",
                ),
            )
        case "disk":
            return (
                f": the workers compute for {worker_pct:.0f} % of the time and wait for the disk, which reads {disk_read}/s",
                Action(
                    "Read",
                    "fewer and larger files",
                    " (WebDataset, tar or record files), from a faster or a local disk, or keep the data in memory. Cheaper decoding does not help.",
                ),
            )
        case _:  # The case "elsewhere".
            return (
                f": the workers compute for {worker_pct:.0f} % of the time and otherwise wait, although no disk is busy; {received}/s arrive over the network",
                Action(
                    "Find",
                    "what the workers wait for",
                    ": a network file system, a lock, a pause. Read larger pieces ahead, or copy the data to a local disk first.",
                ),
            )
