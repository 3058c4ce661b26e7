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

MAX_SAMPLES = 400  # Samples are timed one by one. The mean of some hundreds is known to a few percent.
MAX_SAMPLES_S = 5.0  # Timing these samples ends after this time.
MIN_BATCHES = 8  # Batches of each run with workers. The first batches, which wait for the workers to start, do not count.
MIN_RUN_S = 3.0  # Each run with workers takes at least this long.
# Ratio of the first to the second reading of the samples. If it is larger, the samples came from the disk the first time.
COLD_RATIO = 1.5
CPU_REDUCTION = 0.5  # The report also predicts the throughput if a sample needed this share less CPU time.
MIN_REPORTED_GAIN = 1.05  # A smaller ratio of throughputs is noise.


def limit_sentences(cost: SampleCost) -> str:
    """Return sentences that say what limits the loader, and what to change."""
    if slowest_stage(cost, 0, 1) == "collate":
        collate, total = in_words(1e3 * cost.collate_s), in_words(1e3 * (cost.batch * cost.wall_s + cost.collate_s))
        return f"Collating takes {collate} of the {total} for a batch. Vectorise the collate function."
    share = f"{100 * cost.computes:.0f} %"
    if cost.limit == "computing":
        return f"A sample computes for {share} of its time, so cores are the limit. Decode smaller images, cache decoded samples, or decode on the GPU (DALI)."
    if cost.limit == "waiting":
        return f"A sample computes for {share} of its time and waits for the rest, so reading is the limit. Read fewer and larger files (WebDataset), or use a faster disk."
    return f"A sample computes for {share} of its time and waits for the rest. Cores and reading limit the loader together."


def time_samples(
    loader: Any, clock: Callable[[], float] = time.perf_counter, cpu: Callable[[], float] = time.thread_time
) -> SampleCost:
    """Read samples of ``loader`` in this process twice; return the mean times of a sample."""
    batch = next(iter(loader.batch_sampler))
    indices = [
        index
        for indices, _ in zip(loader.batch_sampler, range(max(MAX_SAMPLES // len(batch), 1)), strict=False)
        for index in indices
    ]
    first_s: list[float] = []
    deadline_s = clock() + MAX_SAMPLES_S
    for index in indices[:MAX_SAMPLES]:
        start_s = clock()
        loader.dataset[index]
        first_s.append(clock() - start_s)
        if clock() > deadline_s and len(first_s) >= len(batch):
            break
    second_s: list[float] = []
    cpu_s, samples = 0.0, list[Any]()
    for index in indices[: len(first_s)]:
        start_s, start_cpu_s = clock(), cpu()
        sample = loader.dataset[index]
        second_s.append(clock() - start_s)
        cpu_s += cpu() - start_cpu_s
        if len(samples) < len(batch):  # Storing all samples would need memory, and allocating it would be timed too.
            samples.append(sample)
    start_s = clock()
    loader.collate_fn(samples)
    collate_s = clock() - start_s
    mean_s = statistics.fmean(second_s)
    error_s = statistics.stdev(second_s) / math.sqrt(len(second_s)) if len(second_s) > 1 else mean_s
    cold_s = statistics.fmean(first_s)
    return SampleCost(
        wall_s=mean_s,
        error_s=error_s,
        cpu_s=cpu_s / len(second_s),
        collate_s=collate_s,
        batch=len(batch),
        first_s=cold_s if cold_s > COLD_RATIO * mean_s else None,
    )


def measure(loader: Any, workers: int) -> float:
    """Return the samples per second that ``loader`` delivers with ``workers``, without its first batches."""
    copy = type(loader)(
        loader.dataset, batch_sampler=loader.batch_sampler, num_workers=workers, collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory, worker_init_fn=loader.worker_init_fn,
        **({"prefetch_factor": loader.prefetch_factor or 2} if workers else {}),
    )  # fmt: skip
    batches, skipped, size = iter(copy), max(2 * workers, 1), len(next(iter(loader.batch_sampler)))
    for _, _ in zip(range(skipped), batches, strict=False):
        pass
    start_s, count = time.perf_counter(), 0
    for _ in batches:
        count += 1
        if count >= MIN_BATCHES and time.perf_counter() - start_s > MIN_RUN_S:
            break
    seconds = time.perf_counter() - start_s
    return count * size / seconds if count and seconds else math.nan


@contextlib.contextmanager
def _as_in_a_worker() -> Iterator[None]:
    """Limit PyTorch to one thread, as in a worker; by default it would use every core."""
    torch = importlib.import_module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def import_loader(name: str) -> Any:
    """Return the loader with the name ``module:attribute``; call it if it is a function.

    Raises ValueError if there is no such loader.
    """
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        loader = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name!r} cannot be imported ({error}). Name a DataLoader as module:attribute.") from None
    loader = loader if hasattr(loader, "batch_sampler") or not callable(loader) else loader()
    if getattr(loader, "batch_sampler", None) is None or not hasattr(loader.dataset, "__getitem__"):
        raise ValueError(f"{name} is not a DataLoader that returns batches of a dataset with indices.")
    return loader


def report(cost: SampleCost, measured: dict[int, float], cores: int, step_ms: float | None, load: float = 0.0) -> list[str]:
    """Return the report's lines; ``load`` is the load average of the host before the measurement."""
    lines = [
        f"A sample takes {in_words(1e3 * cost.wall_s)}, {in_words(1e3 * cost.cpu_s)} of it on a core. A batch has {cost.batch} samples.",
        limit_sentences(cost)
        if load < cores
        else f"{load:.0f} processes already share the {cores} cores of this host, so a wait for a core looks like a wait for a disk. Try again on a quiet host.",
    ]
    if cost.first_s is not None:
        lines.append(
            f"In the first epoch, a sample is read from the disk and takes {in_words(1e3 * cost.first_s)}. The figures below are for later epochs, or a warm page cache."
        )
    usual_counts = {count for count in (0, 1, 2, 4, 8, 16) if count <= 2 * cores}
    worker_counts = sorted(usual_counts | {cores, *measured})
    lines += ["", f"{'workers':>7}  {'predicted samples/s':>24}  {'measured':>9}"]
    for rate in (predict(cost, count, cores) for count in worker_counts):
        predicted = f"{rate.value:,.0f} ({rate.low:,.0f} to {rate.high:,.0f})"
        throughput = f"{measured[rate.workers]:,.0f}" if rate.workers in measured else ""
        lines.append(f"{rate.workers:>7}  {predicted:>24}  {throughput:>9}".rstrip())
    if step_ms is not None:
        needed = 1e3 * cost.batch / step_ms
        least = least_workers(cost, needed, cores, MAX_WORKERS_PER_CORE * cores)
        enough = (
            f"{least} worker{'s deliver' if least != 1 else ' delivers'} this."
            if least is not None
            else f"No number of workers on {cores} cores delivers this."
        )
        lines += ["", f"A step of {step_ms:g} ms needs {needed:,.0f} samples/s. {enough}"]
    saved_s = CPU_REDUCTION * cost.cpu_s
    half = SampleCost(cost.wall_s - saved_s, cost.error_s, cost.cpu_s - saved_s, cost.collate_s, cost.batch)
    gain = predict(half, cores, cores).value / predict(cost, cores, cores).value
    if gain >= MIN_REPORTED_GAIN:
        lines.append(f"If a sample needed half the CPU time, {cores} workers would deliver {gain:.2g} times as many samples/s.")
    return lines


def loader_parser() -> argparse.ArgumentParser:
    """Return the parser of `sawtooth loader`."""
    parser = argparse.ArgumentParser(
        prog="sawtooth loader", description="Time a DataLoader by itself, and say how many workers feed the GPU."
    )
    parser.add_argument(
        "loader", metavar="MODULE:NAME", help="a DataLoader, or a function that returns one, such as train:make_loader"
    )
    parser.add_argument(
        "--step-ms", type=float, default=None, metavar="MS", help="duration of the training step that the loader must feed"
    )
    parser.add_argument(
        "--workers", default=None, metavar="LIST", help="numbers of workers to run, such as 0,2,8 (default: 0, 2 and the cores)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def json_result(cost: SampleCost, measured: dict[int, float], cores: int, step_ms: float | None) -> dict[str, Any]:
    """Return the result as data for JSON; rates are samples per second."""
    needed = 1e3 * cost.batch / step_ms if step_ms is not None else None
    rates = [predict(cost, count, cores) for count in sorted({0, cores, *measured})]
    return {
        "sample": asdict(cost),
        "cores": cores,
        "rates": [
            {
                "workers": rate.workers,
                "predicted": rate.value,
                "low": rate.low,
                "high": rate.high,
                "measured": measured.get(rate.workers),
            }
            for rate in rates
        ],
        "needed": needed,
        "least_workers": least_workers(cost, needed, cores, MAX_WORKERS_PER_CORE * cores) if needed is not None else None,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Benchmark a loader; return 0, or 2 after an error, which is printed on stderr."""
    options = loader_parser().parse_args(arguments)
    cores = usable_cores()
    try:
        counts = [int(word) for word in options.workers.split(",")] if options.workers else [0, 2, cores]
        if min(counts) < 0:
            raise ValueError(f"--workers needs numbers from 0 on, not {min(counts)}.")
        loader = import_loader(options.loader)
    except ValueError as error:
        print(f"sawtooth loader: {error}", file=sys.stderr)
        return 2
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of more workers than cores, but the table shows their effect.
        with _as_in_a_worker():
            cost = time_samples(loader)
        measured = {count: measure(loader, count) for count in dict.fromkeys(counts)}
    if options.json:
        print(json.dumps(json_result(cost, measured, cores, options.step_ms)))
    else:
        print("\n".join(report(cost, measured, cores, options.step_ms, load)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
