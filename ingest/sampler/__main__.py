"""Command line of the sampler, ``python -m sawtooth.ingest.sampler``.

``sawtooth sample`` passes its arguments on to ``main``.
"""

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

from sawtooth.ingest import children
from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.host import HostReader
from sawtooth.ingest.sampler.loop import RecordSink, Sampler
from sawtooth.ingest.sampler.no_gpus import NO_DRIVER_CODES, ONLY_THE_HOST, NoGpus
from sawtooth.ingest.sampler.nvml.driver import DriverLostError, NvmlDriver
from sawtooth.ingest.sampler.options import build_parser, default_format, find_push_token, invalid_reason
from sawtooth.ingest.sampler.prometheus import PrometheusSink, parse_address
from sawtooth.ingest.sampler.push import DRAIN_S, Push, available_on_disk
from sawtooth.ingest.sampler.replay import Replay, ReplayError, read_recording
from sawtooth.ingest.sampler.sinks import PlainSink, SessionSink, default_folder
from sawtooth.ingest.sampler.step_rate import StepRateReader
from sawtooth.installation import recorder_version

CHILD_POLL_S = 0.1  # While the sampler waits for the command, a stop signal is passed on within this time.
PACKAGES = {"pynvml": "nvidia-ml-py"}  # Packages with another name than their module.


def process_alive(pid: int) -> bool:
    """Return whether a process exists; a zombie counts as ended."""
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


def main(arguments: list[str] | None = None, *, nvml: Any = None, clock: SamplerClock | None = None, caller: Any = None) -> int:
    """Run the sampler with ``arguments``; return the exit code of the command, or 0 without a command.

    After an error, the message is printed on stderr, and the exit code is 2.
    """
    options = build_parser().parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    options.format = options.format or default_format(options.out)
    clock = clock or SamplerClock()
    if options.token:
        print(
            "sawtooth sample: other users can see --token in the process list. Use SAWTOOTH_PUSH_TOKEN or --token-file.",
            file=sys.stderr,
        )
    try:
        options.token = find_push_token(options)
    except (OSError, UnicodeDecodeError) as error:
        return _print_error(f"--token-file cannot be read ({getattr(error, 'strerror', None) or 'it is not text'}).")
    if reason := invalid_reason(options):
        return _print_error(reason)
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
    try:
        if options.resume_push is not None:
            return _resume(options, clock, stop)
        if options.push is not None and (reason := _push_error(options, clock)):
            return _print_error(reason)
        sinks, session_push = _sinks(options, clock)
        if options.replay is not None:
            recording = read_recording(options.replay)
            Replay(recording, sinks, clock=clock, stop=stop, speed=options.speed, copies=options.copies).run(
                loop=options.loop, seconds=options.seconds
            )
            code = 0
        else:
            code = _sample(
                options=options,
                sinks=sinks,
                nvml=nvml or importlib.import_module("pynvml"),
                clock=clock,
                stop=stop,
                caller=caller,
            )
        undelivered = _wait_for_push(session_push)
        return code or undelivered
    except (DriverLostError, ReplayError) as error:
        return _print_error(str(error))
    except ModuleNotFoundError as error:
        package = PACKAGES.get(error.name or "", error.name)
        return _print_error(f"{package} is not installed for {sys.executable}. Install it there: pip install {package}")
    except OSError as error:
        return _print_error(_write_error(error))


def _push_error(options: argparse.Namespace, clock: SamplerClock) -> str | None:
    """Check the connection to the dashboard before the command runs.

    Returns the error message. Without an error, prints the address and returns None.
    """
    trial = Push(Path("trial"), options.push, options.token, available=dict, clock=clock)
    trial.step()
    if trial.state.trouble:
        return f"{trial.state.trouble} at {options.push}. `sawtooth serve` prints its address and push token."
    print(f"watch it at {options.push.rstrip('/')}/live", file=sys.stderr, flush=True)
    return None


def _sample(
    options: argparse.Namespace, sinks: list[RecordSink], nvml: Any, clock: SamplerClock, stop: threading.Event, caller: Any
) -> int:
    session = options.format == "session"
    gpus = None if options.gpus is None else [gpu.strip() for gpu in options.gpus.split(",") if gpu.strip()]
    with_processes = session and not options.no_processes
    driver = NvmlDriver(nvml, clock, gpus, processes=with_processes, buffers=session, every_tick=not session)
    host = None if options.no_host else HostReader()
    try:
        driver.open()  # The command does not run if nothing can be sampled.
    except DriverLostError as error:
        if error.code not in NO_DRIVER_CODES or not session or host is None or not host.is_available:
            raise
        driver = NoGpus(clock)
        print(f"sawtooth sample: {ONLY_THE_HOST}", file=sys.stderr, flush=True)
    _add_versions(sinks, driver)
    child = None
    if options.command:
        try:
            child = subprocess.Popen(options.command, env=children.original_environment())
        except OSError as error:
            return _print_error(children.why_not_started(options.command[0], error))
    alive = _alive_check(options.watch_pid, child)
    if host is not None:
        host.follow(options.follow or [pid for pid in (options.watch_pid, child.pid if child else None) if pid])
    step_rate = StepRateReader(options.step_rate) if options.step_rate is not None else None
    sampler = Sampler(
        driver,
        sinks,
        clock=clock,
        stop=stop,
        interval_s=options.interval,
        caller=caller,
        alive=alive,
        host=host,
        step_rate=step_rate,
    )
    if child is None:
        sampler.run(options.seconds)
        return 0
    try:
        sampler.run(options.seconds)
    except Exception as error:  # The command already runs. Its exit code is returned after any error.
        sentence = _write_error(error) if isinstance(error, OSError) else f"Sampling has failed ({error!r})."
        _print_error(f"{sentence} The command continues without sampling.")
    return _wait_for_exit_code(child, stop)


def _resume(options: argparse.Namespace, clock: SamplerClock, stop: threading.Event) -> int:
    folder = options.resume_push
    if not (folder / "meta.json").is_file():
        return _print_error(f"{folder.name} is not a session folder, because it has no meta.json.")
    push = Push(folder, options.push, options.token, available=lambda: available_on_disk(folder), clock=clock)
    while not stop.is_set() and not push.drained():
        clock.wait(stop, push.step())
        if push.state.trouble:
            print(f"sawtooth sample: {push.state.trouble}", file=sys.stderr)
    return 0 if push.drained() else 2


class _SessionPush:
    """Pushes the session on a separate thread, from the moment the session folder exists."""

    def __init__(self, options: argparse.Namespace, clock: SamplerClock) -> None:
        self.options = options
        self.clock = clock
        self.sink: SessionSink | None = None
        self.push: Push | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, folder: Path) -> None:
        """Start to push ``folder``."""
        print(f"sampling into {folder}", file=sys.stderr, flush=True)
        if self.options.push is not None:
            self.push = Push(folder, self.options.push, self.options.token, available=self._available, clock=self.clock)
            self._thread = threading.Thread(target=self.push.run, args=(self._stop,), name="push", daemon=True)
            self._thread.start()

    def end(self) -> str | None:
        """Wait until everything is sent; return a message if the push failed, else None."""
        if self._thread is None or self.push is None:
            return None
        self._stop.set()
        self._thread.join(DRAIN_S + 15)
        if self.push.drained():
            return None
        return (
            f"{self.push.state.trouble}. Send the rest later with --resume-push {self.push.folder} --push {self.options.push}."
        )

    def _available(self) -> dict[int, int]:
        writer = self.sink.writer if self.sink else None
        return {} if writer is None else {0: writer.meta_bytes, **dict(writer.durable)}


def _wait_for_push(session_push: _SessionPush | None) -> int:
    trouble = session_push.end() if session_push else None
    return _print_error(trouble) if trouble else 0


def _sinks(options: argparse.Namespace, clock: SamplerClock) -> tuple[list[RecordSink], _SessionPush | None]:
    sinks: list[RecordSink] = []
    if options.prometheus is not None:
        exporter = PrometheusSink(clock)
        try:
            address = parse_address(options.prometheus)
        except ValueError:
            raise ReplayError(f"--prometheus needs a port, such as :9400, not {options.prometheus!r}.") from None
        port = exporter.serve(address)
        print(f"metrics at http://{address[0]}:{port}/metrics", file=sys.stderr, flush=True)
        sinks.append(exporter)
    if options.format == "jsonl":
        out = options.out
        to_stdout = out is None or str(out) == "-"
        open_file = (lambda: os.fdopen(os.dup(1), "wb")) if to_stdout else (lambda: out.open("wb"))
        return [*sinks, PlainSink(open_file, options.interval)], None
    session_push = _SessionPush(options, clock)
    facts = {"replay_of": options.replay.name} if options.replay is not None else {}
    session = SessionSink(
        options.out or default_folder(),
        options.interval,
        session_push.begin,
        name=options.name,
        command=options.command,
        **facts,
    )
    session_push.sink = session
    return [*sinks, session], session_push


def _add_versions(sinks: list[RecordSink], driver: NvmlDriver) -> None:
    for sink in sinks:
        if isinstance(sink, PlainSink):
            sink.driver_version = driver.versions.get("driver")
        if isinstance(sink, SessionSink):
            sink.facts |= {"versions": {**driver.versions, "recorder": recorder_version()}}
            sink.facts |= {"host_only": ONLY_THE_HOST} if isinstance(driver, NoGpus) else {}


def _alive_check(watched_pid: int | None, child: subprocess.Popen[bytes] | None) -> Callable[[], bool]:
    def alive() -> bool:
        return (watched_pid is None or process_alive(watched_pid)) and (child is None or child.poll() is None)

    return alive


def _wait_for_exit_code(child: subprocess.Popen[bytes], stop: threading.Event) -> int:
    """Wait for the command and return its exit code.

    If ``stop`` is set, the command is stopped too. The limit --seconds ends only the sampling.
    """
    while child.poll() is None and not stop.wait(CHILD_POLL_S):
        pass
    if child.poll() is None:
        child.terminate()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _write_error(error: OSError) -> str:
    file = f" ({error.filename})" if error.filename else ""
    return f"The samples cannot be written or served{file}: {error.strerror}."


def _print_error(sentence: str) -> int:
    print(f"sawtooth sample: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
