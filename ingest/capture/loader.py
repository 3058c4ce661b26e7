"""``sawtooth loader``: the throughput of a DataLoader, and how many workers feed the GPU.

Samples are timed in one process, by wall clock and CPU time, first from the disk and then again from memory. From these times a model predicts the
throughput of n workers. The loader then runs with a few numbers of workers, to compare the model with measurements.

This needs the standard library and the installed PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sawtooth.ingest.loop.cores import usable_cores
from sawtooth.ingest.loop.loading import MAX_WORKERS_PER_CORE, SampleCost, least_workers, predict, slowest_stage
from sawtooth.ingest.loop.numbers import in_words

SAMPLES_MOST, SAMPLES_S = 400, 5.0  # timed one by one: the mean of some hundreds is known to a few percent
BATCHES_LEAST, RUN_S = 8, 3.0  # of each run with workers; the first batches are not counted, they wait for the workers to start
COLD = 1.5  # the first reading of a sample against the second: above it the disk is seen, and from memory it is quicker
SPEEDUP, LEAST_SAID_SHARE = 0.5, 1.05  # of a sample's CPU time, in what a cheaper sample would bring; less is noise


def limit_of(cost: SampleCost) -> str:
    """Return a sentence that says where a batch's time goes."""
    if slowest_stage(cost, 0, 1) == "collate":
        took, whole = in_words(1e3 * cost.collate_s), in_words(1e3 * (cost.batch * cost.wall_s + cost.collate_s))
        return f"Collating takes {took} of a batch's {whole}: vectorise the collate function."
    share = f"{cost.computes:.0%}"
    if cost.limit == "computing":
        return f"A sample computes for {share} of its time: cores are the limit. Decode smaller, cache what is decoded, or decode on the GPU (DALI)."
    if cost.limit == "waiting":
        return f"A sample computes for {share} of its time and waits for the rest: reading is the limit. Read fewer and larger files (WebDataset), or a faster disk."
    return f"A sample computes for {share} of its time and waits for the rest: both count."


def time_samples(
    loader: Any, clock: Callable[[], float] = time.perf_counter, cpu: Callable[[], float] = time.thread_time
) -> SampleCost:
    """Time samples of ``loader`` in this process, each twice."""
    batch = next(iter(loader.batch_sampler))
    indices = [
        index
        for indices, _ in zip(loader.batch_sampler, range(max(SAMPLES_MOST // len(batch), 1)), strict=False)
        for index in indices
    ]
    first: list[float] = []
    until = clock() + SAMPLES_S
    for index in indices[:SAMPLES_MOST]:
        began = clock()
        loader.dataset[index]
        first.append(clock() - began)
        if clock() > until and len(first) >= len(batch):
            break
    walls: list[float] = []
    used, made = 0.0, list[Any]()
    for index in indices[: len(first)]:
        began, before = clock(), cpu()
        sample = loader.dataset[index]
        walls.append(clock() - began)
        used += cpu() - before
        if len(made) < len(batch):  # to keep them all would time the memory of a process that grows
            made.append(sample)
    began = clock()
    loader.collate_fn(made)
    collate = clock() - began
    mean = statistics.fmean(walls)
    error = statistics.stdev(walls) / math.sqrt(len(walls)) if len(walls) > 1 else mean
    cold = statistics.fmean(first)
    return SampleCost(mean, error, used / len(walls), collate, len(batch), cold if cold > COLD * mean else None)


def measure(loader: Any, workers: int) -> float:
    """Return the samples a second that ``loader`` gives with ``workers``, its first batches left out."""
    again = type(loader)(
        loader.dataset, batch_sampler=loader.batch_sampler, num_workers=workers, collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory, worker_init_fn=loader.worker_init_fn,
        **({"prefetch_factor": loader.prefetch_factor or 2} if workers else {}),
    )  # fmt: skip
    batches, skipped, size = iter(again), max(2 * workers, 1), len(next(iter(loader.batch_sampler)))
    for _, _ in zip(range(skipped), batches, strict=False):
        pass
    began, counted = time.perf_counter(), 0
    for _ in batches:
        counted += 1
        if counted >= BATCHES_LEAST and time.perf_counter() - began > RUN_S:
            break
    seconds = time.perf_counter() - began
    return counted * size / seconds if counted and seconds else math.nan


@contextlib.contextmanager
def _as_in_a_worker() -> Iterator[None]:
    """Limit PyTorch to one thread, as in a worker; by default it would use every core."""
    torch = importlib.import_module("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def loader_of(name: str) -> Any:
    """Return the loader with the name ``module:attribute``; call it if it is a function.

    Raises ValueError with a sentence if there is no such loader.
    """
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        loader = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name!r} is not a module:attribute that can be imported ({error}).") from None
    loader = loader if hasattr(loader, "batch_sampler") or not callable(loader) else loader()
    if getattr(loader, "batch_sampler", None) is None or not hasattr(loader.dataset, "__getitem__"):
        raise ValueError(f"{name} is no DataLoader over a dataset with indices and batches.")
    return loader


def report(cost: SampleCost, measured: dict[int, float], cores: int, step_ms: float | None, load: float = 0.0) -> list[str]:
    """Return the report's lines; ``load`` is the number of processes that used the cores before."""
    lines = [
        f"A sample takes {in_words(1e3 * cost.wall_s)}, {in_words(1e3 * cost.cpu_s)} of it on a core; a batch has {cost.batch}.",
        limit_of(cost)
        if load < cores
        else f"{load:.0f} processes already share the {cores} cores here, so waiting for a core and for a disk cannot be told apart: try again on a quiet host.",
    ]
    if cost.first_s is not None:
        lines.append(
            f"Read for the first time it takes {in_words(1e3 * cost.first_s)}: the figures below hold from the second epoch on, or with a warm page cache."
        )
    shown = sorted({0, 1, 2, 4, 8, 16, cores, *measured} - {n for n in (4, 8, 16) if n > 2 * cores and n not in measured})
    lines += ["", f"{'workers':>7}  {'predicted samples/s':>24}  {'measured':>9}"]
    for rate in (predict(cost, n, cores) for n in shown):
        of_it = f"{measured[rate.workers]:>9,.0f}" if rate.workers in measured else f"{'':>9}"
        lines.append(f"{rate.workers:>7}  {f'{rate.value:,.0f} ({rate.low:,.0f} to {rate.high:,.0f})':>24}  {of_it}".rstrip())
    if step_ms is not None:
        wanted = 1e3 * cost.batch / step_ms
        least = least_workers(cost, wanted, cores, MAX_WORKERS_PER_CORE * cores)
        enough = (
            f"{least} worker{'s' if least != 1 else ''} feed"
            if least is not None
            else f"no number of workers on {cores} cores feeds"
        )
        lines += ["", f"A step of {step_ms:g} ms needs {wanted:,.0f} samples/s: {enough} it."]
    half = SampleCost(cost.wall_s - SPEEDUP * cost.cpu_s, cost.error_s, cost.cpu_s * (1 - SPEEDUP), cost.collate_s, cost.batch)
    gain = predict(half, cores, cores).value / predict(cost, cores, cores).value
    if gain >= LEAST_SAID_SHARE:
        lines.append(f"With half the computing in a sample, {cores} workers would give {gain:.2g} times as many.")
    return lines


def loader_parser() -> argparse.ArgumentParser:
    """Return the parser of `sawtooth loader`."""
    parser = argparse.ArgumentParser(
        prog="sawtooth loader", description="Time a DataLoader by itself, and say how many workers feed the GPU."
    )
    parser.add_argument(
        "loader", metavar="MODULE:NAME", help="a DataLoader, or a function that returns one, such as train:make_loader"
    )
    parser.add_argument("--step-ms", type=float, default=None, metavar="MS", help="the step that it must feed")
    parser.add_argument(
        "--workers", default=None, metavar="LIST", help="numbers of workers to run, such as 0,2,8 (default: 0, 2 and the cores)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def plain(cost: SampleCost, measured: dict[int, float], cores: int, step_ms: float | None) -> dict[str, Any]:
    """Return the result as data for JSON; rates are samples per second."""
    wanted = 1e3 * cost.batch / step_ms if step_ms is not None else None
    rates = [predict(cost, count, cores) for count in sorted({0, cores, *measured})]
    return {
        "sample": asdict(cost),
        "cores": cores,
        "rates": [
            {"workers": r.workers, "predicted": r.value, "low": r.low, "high": r.high, "measured": measured.get(r.workers)}
            for r in rates
        ],
        "needed": wanted,
        "least_workers": least_workers(cost, wanted, cores, MAX_WORKERS_PER_CORE * cores) if wanted is not None else None,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Benchmark a loader; return 0, or 2 with a sentence on stderr."""
    options = loader_parser().parse_args(arguments)
    cores = usable_cores()
    try:
        counts = [int(word) for word in options.workers.split(",")] if options.workers else [0, 2, cores]
        if min(counts) < 0:
            raise ValueError("--workers takes numbers from 0 on.")
        loader = loader_of(options.loader)
    except ValueError as error:
        print(f"sawtooth loader: {error}", file=sys.stderr)
        return 2
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more workers than cores: the table says what they give
        with _as_in_a_worker():
            cost = time_samples(loader)
        measured = {count: measure(loader, count) for count in dict.fromkeys(counts)}
    if options.json:
        print(json.dumps(plain(cost, measured, cores, options.step_ms)))
    else:
        print("\n".join(report(cost, measured, cores, options.step_ms, load)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
