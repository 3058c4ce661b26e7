"""Generate telemetry of many hosts, read it in, and open the overview of all GPUs.

    python -m tests.benchmarks.fleet --gpus 64 --days 7 --every 10 --data FOLDER

There is one nvidia-smi log per host. It prints the ingest's MB/s, then seconds and peak memory of the analysis and of the
overview, each in its own process. During the second day, heat halves the clock of one GPU. The overview should show this GPU
first.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from sawtooth.analysis.findings.sampled.fleet import fleet_of
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.app.charts import fleet as drawing
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder

PER_HOST = 8
START = 1_790_496_000
HEADER = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W], temperature.gpu, clocks.current.sm [MHz], clocks_event_reasons.active"


def write_host(path: Path, host: int, days: float, every: float) -> None:
    """Write the log of one host with PER_HOST GPUs; GPU 3 of host 1 is hot during the second day."""
    random = np.random.default_rng(host)
    count = int(days * 86_400 / every)
    stamps = [datetime.fromtimestamp(START + i * every, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3] for i in range(count)]
    util = np.clip(random.normal(93, 3, (count, PER_HOST)), 0, 100).round().astype(int)
    power, temp = random.normal(600, 15, (count, PER_HOST)), random.normal(64, 1, (count, PER_HOST)).round().astype(int)
    clock = random.normal(1755, 4, (count, PER_HOST)).round().astype(int)
    mask = np.zeros((count, PER_HOST), int)
    if host == 1:
        hot = slice(int(86_400 / every), int(2 * 86_400 / every))
        clock[hot, 3], mask[hot, 3], temp[hot, 3] = 877, 0x40, 88
    with path.open("w") as file:
        file.write(HEADER + "\n")
        for i, stamp in enumerate(stamps):
            file.writelines(
                f"{stamp}, {gpu}, {util[i, gpu]} %, 41200 MiB, {power[i, gpu]:.2f} W, {temp[i, gpu]}, {clock[i, gpu]} MHz, 0x{mask[i, gpu]:016x}\n"
                for gpu in range(PER_HOST)
            )


def ingested(root: Path, hosts: int, days: float, every: float) -> str:
    folder = DataFolder(root).create()
    logs, seconds, size = [], 0.0, 0
    for host in range(hosts):
        log = root / f"node-{host:03}.csv"
        write_host(log, host, days, every)
        size += log.stat().st_size
        logs.append((log, log.name))
    began = time.perf_counter()
    (run,) = ingest_into_runs(folder, logs, keep_source=False, name="fleet").runs
    seconds = time.perf_counter() - began
    for log, _ in logs:
        log.unlink()
    samples = int(days * 86_400 / every) * PER_HOST * hosts
    print(f"ingest: {size / 1e6:,.0f} MB, {samples:,} samples, {seconds:,.0f} s, {size / 1e6 / seconds:.1f} MB/s", flush=True)
    return run.id


def analysed(root: Path, run: str) -> None:
    """Analyse the run, as the ingest of the app does."""
    library = Library(DataFolder(root))
    result_of(library.folder.read_manifest(run), library)
    library.close()


def overview(root: Path, run: str) -> None:
    library = Library(DataFolder(root))
    result = result_of(library.folder.read_manifest(run), library)
    fleet = fleet_of(result, library)
    assert fleet is not None
    print(f"first row: {fleet.rows[0].label}: {fleet.rows[0].finding and fleet.rows[0].finding.title}")
    drawing.chart(fleet, dark=False).figure.to_json()
    library.close()


def alone(what: str, work: Callable[[Path, str], None], root: Path, run: str) -> None:
    """Run the work in a new process; print its seconds and its peak memory."""
    process = multiprocessing.get_context("spawn").Process(target=_timed, args=(what, work, root, run))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{what}: exit code {process.exitcode}")


def _timed(what: str, work: Callable[[Path, str], None], root: Path, run: str) -> None:
    began = time.perf_counter()
    work(root, run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{what}: {time.perf_counter() - began:.1f} s, {peak:.2f} GB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    run = ingested(options.data, options.gpus // PER_HOST, options.days, options.every)
    alone("analysis after ingest", analysed, options.data, run)
    alone("overview", overview, options.data, run)


if __name__ == "__main__":
    main()
