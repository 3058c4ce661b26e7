"""Compare mapping a job with Ray and with local processes, and measure the effect of killed processes.

    python -m tests.benchmarks.ray_map TRACES OUT [--shares 0.1 0.5 0.9]

TRACES is a folder with the traces of a job, OUT the folder for the results. Both maps use two processes. It prints the
processor seconds of each map with its child processes, then one line per kill. When a share of the summaries exists, SIGKILL
is sent to a Ray worker, to one of two Ray nodes, or to ``sawtooth map`` itself, after which the same command runs again. A
line ends with "as expected" if all summaries have the same bytes as those of the local map, and none was written twice.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from sawtooth.analysis.cluster.ray_tasks import SETTINGS

SUBREAPER = 36  # An option of prctl. Processes that Ray leaves behind become our children.
LOOK_EVERY_SECONDS = 0.02
LIMIT_SECONDS = 1_800.0  # Longest time of one map on a busy machine; a map that takes longer will not end.
NODE_STARTS_SECONDS = "300"  # On a busy machine, a node needs more time than Ray's default.
SAMPLED_EVERY_SECONDS = 0.1  # Processor time of a process whose parent reaped it is known only up to the last sample.
MAP = (sys.executable, "-m", "sawtooth", "map", "--json", "--to")


def processor_seconds(*command: object) -> float:
    """Return the processor seconds of ``command`` and of all processes that it starts."""
    took: dict[tuple[int, float], float] = {}
    started = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    while started.poll() is None or psutil.Process().children():
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, ChildProcessError):
                times = process.cpu_times()
                took[process.pid, process.create_time()] = times.user + times.system
                if started.returncode is not None:
                    os.waitpid(process.pid, os.WNOHANG)
        time.sleep(SAMPLED_EVERY_SECONDS)
    assert started.returncode == 0
    return sum(took.values())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def written(folder: Path) -> dict[str, int]:
    """Return, by summary, its file's inode number, which changes if the summary is written again."""
    return {path.name: path.stat().st_ino for path in folder.glob("*.parquet")}


def mapped_with_a_kill(traces: Path, to: Path, what: str, at: int, limit_s: float = LIMIT_SECONDS) -> dict[str, int]:
    """Map ``traces`` on a cluster of two nodes, and kill ``what`` when ``at`` summaries exist.

    After this, the map continues or is started again. Returns the summaries that existed at the kill. Raises TimeoutExpired if
    there are not enough summaries, or if the map does not end, within ``limit_s``.
    """
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    command = [*MAP, str(to), str(traces), "--engine", "ray", "--address", cluster.address]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + limit_s
    try:
        while len(written(to)) < at:
            assert driver.poll() is None, "the map ended before the kill"
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(command, limit_s)
            time.sleep(LOOK_EVERY_SECONDS)
        if what == "worker":
            busy = [p for p in psutil.process_iter(["cmdline"]) if "ray::summarise" in " ".join(p.info["cmdline"] or ())]
            busy[0].kill()
        elif what == "node":
            second.kill_raylet(check_alive=False)
        else:
            driver.kill()
        there = written(to)
        driver.wait(limit_s)
        if what == "driver":
            assert driver.returncode == -signal.SIGKILL
            driver = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            driver.wait(limit_s)
        assert driver.returncode == 0
    finally:
        driver.kill()
        cluster.shutdown()
    return there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.1, 0.5, 0.9])
    options = parser.parse_args()
    os.environ.update(SETTINGS, RAY_raylet_start_wait_time_s=NODE_STARTS_SECONDS)
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    local, ray = options.out / "local", options.out / "ray"
    took = {
        to: processor_seconds(*MAP, to, options.traces, "--jobs", 2, *engine)
        for to, engine in ((local, ()), (ray, ("--engine", "ray")))
    }
    expected = contents(local)
    same = "the same" if contents(ray) == expected else "OTHER"
    print(
        f"{len(expected)} summaries: local {took[local]:.1f} CPU s, Ray {took[ray]:.1f} ({took[ray] / took[local] - 1:+.1%}), {same} summaries",
        flush=True,
    )
    for what in ("worker", "node", "driver"):
        for share in options.shares:
            to = options.out / f"{what}-{share}"
            there = mapped_with_a_kill(options.traces, to, what, round(share * len(expected)))
            now, again = contents(to), sum(written(to).get(name) != file for name, file in there.items())
            lost, fine = len(expected.keys() - now.keys()), now == expected
            print(
                f"{what} killed at {len(there)}: {lost} lost, {again} written again{': as expected' if fine and not again else ': WRONG'}",
                flush=True,
            )
            shutil.rmtree(to)


if __name__ == "__main__":
    main()
