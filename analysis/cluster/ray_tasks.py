"""Ray Core as the engine of a map: one task per source, on any node of the cluster.

Ray restarts a task if its worker or node dies. Only addresses and outcomes are sent. The nodes read sources and write summaries
themselves, so each node needs this version of Sawtooth and the same minor version of Python.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Sequence
from typing import Any

from sawtooth.analysis.cluster.mapping import SourceOutcome, Task
from sawtooth.analysis.cluster.storage import SourceVersion
from sawtooth.ingest.errors import UsageError

MAX_RETRIES = 3  # Ray starts a task again up to this many times if its worker or node died.
MAX_SUBMITTED_TASKS = 1_000  # Limit of submitted tasks, because Ray uses memory for each waiting task.
# The first setting stops Ray's usage reports. The second gives Ray's workers the same priority as other processes.
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
NOT_STARTED = "Ray did not start on this machine: {why} Run the command again, or without --engine ray."
DIED = "The Ray task that read this source did not finish ({error})."


def on_ray(
    task: Task, sources: Sequence[SourceVersion], to: str, address: str | None = None, jobs: int | None = None
) -> Generator[SourceOutcome]:
    """Run ``task`` on every source in the Ray cluster at ``address``, or in a new one.

    A new cluster has ``jobs`` cores of this machine and ends with the work.
    """
    ray = _connect(address, jobs)
    try:
        remote = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(task)
        remaining = iter(sources)
        running: dict[Any, SourceVersion] = {}
        while True:
            for source in remaining:
                running[remote.remote(source, to)] = source
                if len(running) >= MAX_SUBMITTED_TASKS:
                    break
            if not running:
                return
            finished, _ = ray.wait(list(running), num_returns=1)
            for reference in finished:
                source = running.pop(reference)
                try:
                    yield ray.get(reference)
                except ray.exceptions.RayError as error:
                    yield SourceOutcome(source.url, failed=DIED.format(error=type(error).__name__))
    finally:
        ray.shutdown()


def _connect(address: str | None, jobs: int | None) -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UsageError("--engine ray needs Ray, which is not installed. Install sawtooth[cluster].") from None
    try:
        if address is None:
            ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises a bare Exception if a node takes too long to start.
        if address is None:
            raise UsageError(NOT_STARTED.format(why=str(error).strip() or type(error).__name__)) from None
        raise UsageError(
            f"There is no Ray cluster at {address} ({type(error).__name__}). Check the address, or leave out --address to start Ray on this machine."
        ) from None
    return ray
