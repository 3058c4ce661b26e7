"""``python -m ingest.sampler``: the command line of the sampler. ``sawtooth sample`` passes its arguments on to ``main``."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ingest.sampler.clock import Clock
from ingest.sampler.driver import DriverLostError, NvmlDriver
from ingest.sampler.loop import Sampler, Sink
from ingest.sampler.sinks import PlainSink, SessionSink, default_folder

SHORTEST_INTERVAL_S = 0.02  # power is the fastest signal there is: one sample per 20 ms


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    p = argparse.ArgumentParser(
        prog="sawtooth sample",
        description="Sample the GPUs of this machine beside a training job: utilization, tensor activity, power, clocks, memory.",
    )
    p.add_argument("--interval", type=float, default=0.1, metavar="SECONDS", help="time between samples (default 0.1)")
    p.add_argument("--out", type=Path, default=None, metavar="DIR", help="where sessions go (default: the data folder's live/)")
    p.add_argument("--gpus", default=None, metavar="LIST", help="indices or UUIDs, separated by commas (default: all)")
    p.add_argument("--seconds", type=float, default=None, help="stop after this long (default: until interrupted)")
    p.add_argument(
        "--format",
        choices=("session", "jsonl"),
        default="session",
        help="jsonl: plain lines into the file --out, or - for stdout",
    )
    p.add_argument("--name", default="", help="a name for the session")
    p.add_argument("--watch-pid", type=int, default=None, metavar="PID", help="stop when this process is gone")
    p.add_argument("--no-processes", action="store_true", help="do not record which processes use the GPUs")
    p.add_argument("command", nargs="*", metavar="COMMAND", help="run this (after --) and sample until it ends")
    return p


def process_alive(pid: int) -> bool:
    """Tell whether a process exists (a zombie counts as gone)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(arguments: list[str] | None = None, *, nvml: Any = None, clock: Clock | None = None, caller: Any = None) -> int:
    """Sample as the arguments say. Returns the exit code: the command's own, 0, or 2 with a sentence on stderr."""
    given = parser().parse_args(arguments)
    if given.interval < SHORTEST_INTERVAL_S:
        return _refuse(f"--interval must be at least {SHORTEST_INTERVAL_S:g} s: nothing NVML reports changes faster.")
    clock = clock or Clock()
    driver = NvmlDriver(
        nvml or importlib.import_module("pynvml"),
        clock,
        None if given.gpus is None else [g.strip() for g in given.gpus.split(",") if g.strip()],
        processes=not given.no_processes and given.format == "session",
        buffers=given.format == "session",
    )
    sinks = _sinks(given)
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
    child: subprocess.Popen[bytes] | None = None
    try:
        driver.open()  # before the command starts: without a GPU there is nothing to run it for
        _describe(sinks, driver)
        if given.command:
            child = subprocess.Popen(given.command)
        sampler = Sampler(
            driver,
            sinks,
            clock=clock,
            stop=stop,
            interval_s=given.interval,
            caller=caller,
            alive=_alive(given.watch_pid, child),
        )
        reason = sampler.run(given.seconds)
    except DriverLostError as error:
        return _refuse(str(error))
    except FileNotFoundError:
        return _refuse(f"There is no command {given.command[0]!r}." if given.command else "The output folder cannot be made.")
    except OSError as error:
        return _refuse(f"The samples cannot be written: {error.strerror}.")
    return _finish(child, reason)


def _sinks(given: argparse.Namespace) -> list[Sink]:
    if given.format == "jsonl":
        if given.out is None or str(given.out) == "-":
            return [PlainSink(lambda: os.fdopen(os.dup(1), "wb"), given.interval)]
        return [PlainSink(lambda: given.out.open("wb"), given.interval)]
    return [SessionSink(given.out or default_folder(), given.interval, _announce, name=given.name, command=given.command)]


def _announce(folder: Path) -> None:
    print(f"sampling into {folder}", file=sys.stderr, flush=True)


def _describe(sinks: list[Sink], driver: NvmlDriver) -> None:
    for sink in sinks:
        if isinstance(sink, PlainSink):
            sink.driver_version = driver.versions.get("driver")
        if isinstance(sink, SessionSink):
            sink.facts |= {"versions": driver.versions}


def _alive(watched: int | None, child: subprocess.Popen[bytes] | None) -> Callable[[], bool]:
    def alive() -> bool:
        return (watched is None or process_alive(watched)) and (child is None or child.poll() is None)

    return alive


def _finish(child: subprocess.Popen[bytes] | None, reason: str) -> int:
    if child is None:
        return 0
    if reason == "stopped" and child.poll() is None:
        child.terminate()  # whoever stops the sampler stops what it wraps; --seconds bounds the sampling only
    code = child.wait()
    return code if code >= 0 else 128 - code


def _refuse(sentence: str) -> int:
    print(f"sawtooth sample: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
