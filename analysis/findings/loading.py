"""The loader's processes: how many feed a step, by what a sample took them in the helper's own timing, and when they start."""

from __future__ import annotations

import numpy as np

from sawtooth.analysis.findings.queries import Events, frames
from sawtooth.analysis.findings.rule import RuleContext, in_words
from sawtooth.analysis.run.loading import cores_of, sample_cost
from sawtooth.ingest.loading import BEYOND_CORES, least_workers, predict
from sawtooth.ingest.schema import UserFacts

WORTH_NAMING = 0.02  # a loader that costs less than 2 % of the step is within the noise of most step times
ITERATOR_MADE = r"torch/utils/data/dataloader\.py\(\d+\): _get_iterator"  # an epoch of a loader begins
PROCESS_STARTED = r"multiprocessing/process\.py\(\d+\): start"


def limited_by(facts: UserFacts) -> tuple[str, str] | None:
    """Return how a title ends that says what a sample's time goes to, and what to do; None where that is not known or both count."""
    cost = sample_cost(facts)
    if cost is None or cost.limit is None:
        return None
    if cost.limit == "waiting":
        return (
            f": a sample waits {100 * (1 - cost.computes):.0f} % of its time, for a disk, a network or a lock",
            "More workers wait side by side. Then read fewer and larger files (WebDataset), or from a local disk; cheaper decoding brings nothing.",
        )
    return (
        f": a sample computes {100 * cost.computes:.0f} % of its time",
        "Give the loader more workers, up to the cores, or make a sample cheaper: decode smaller images, cache what is decoded, decode on the GPU (DALI).",
    )


def keeps_up(facts: UserFacts, step_ms: float | None) -> bool:
    """Tell whether the workers, as they were timed, give more than steps of ``step_ms`` take, for sure."""
    cost, workers = sample_cost(facts), int(facts.loader_workers or 0)
    if cost is None or not workers or not step_ms:
        return False
    return predict(cost, workers, cores_of(facts), workers).low > 1e3 * cost.batch / step_ms


def workers_needed(facts: UserFacts, step_ms: float | None) -> str:
    """Return in sentences what a sample took and how many workers feed a step of ``step_ms``; empty where neither was measured."""
    cost = sample_cost(facts)
    if cost is None or not step_ms:
        return ""
    cores, seen = cores_of(facts), int(facts.loader_workers or 0)
    took = f"A sample takes {in_words(1e3 * cost.wall_s)}, {in_words(1e3 * cost.cpu_s)} of it on a core."
    wanted, most = 1e3 * cost.batch / step_ms, BEYOND_CORES * cores
    likely = least_workers(cost, wanted, cores, most, seen, sure=False)
    if likely is None and cost.pin_s and wanted > cost.batch / cost.pin_s:
        return (
            f"{took} One thread takes {in_words(1e3 * cost.pin_s)} to pin a batch, longer than the step, however many workers there are: "
            "send fewer bytes (uint8 instead of float32, smaller images), and convert them on the GPU."
        )
    if likely is None:
        return f"{took} No number of workers on {cores} cores feeds a step of {in_words(step_ms)}: it needs {wanted:,.0f} samples/s."
    sure = least_workers(cost, wanted, cores, most, seen)
    for_sure = f"{sure} for sure" if sure is not None else f"none on {cores} cores for sure"
    workers = "1 worker feeds" if likely == 1 else f"{likely} workers feed"
    return f"{took} By that {workers} a step of {in_words(step_ms)} ({for_sure})."


def worker_starts(context: RuleContext) -> Events:
    """Return the calls that make a loader's iterator and start worker processes for it; a loader without workers starts none."""
    made, started = frames(context, ITERATOR_MADE), frames(context, PROCESS_STARTED)
    moments = np.sort(started.frame["start_ns"].to_numpy(np.int64))
    first, last = (np.searchsorted(moments, made.frame[edge].to_numpy(np.int64)) for edge in ("start_ns", "end_ns"))
    return made.where(last > first)
