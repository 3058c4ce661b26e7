"""The sampler of this machine, as a child process of the server.

A button starts and stops it, and it ends together with the server.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sawtooth.app.jobs.bundled_examples import SAMPLES
from sawtooth.app.settings import settings
from sawtooth.ingest import children

REPLAYED = "resnet_starved"  # This bundled recording has the clearest sawtooth.
MAX_REPLAY_S = 1800  # Nobody watches a replay longer, and a replay fills the disk.
MAX_PROBE_S = 20  # Loading the driver on a host with eight idle GPUs takes up to ten seconds.
MAX_STOP_S = 5  # The sampler needs time to write and sync its last record.
PROBE = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"


@dataclass(frozen=True)
class Gpus:
    """The number of GPUs of this machine, and the reason if none can be sampled."""

    count: int
    why_none: str | None = None


@lru_cache(maxsize=1)
def gpus_here() -> Gpus:
    """Return the GPUs of this machine.

    A child process asks the driver once, because a driver that hangs must not block the pages.
    """
    try:
        finished = subprocess.run(
            [sys.executable, "-c", PROBE],
            capture_output=True,
            text=True,
            timeout=MAX_PROBE_S,
            check=False,
            env=children.inherited_environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return Gpus(0, "The NVIDIA driver does not answer.")
    if finished.returncode == 0 and finished.stdout.strip().isdigit():
        count = int(finished.stdout)
        return Gpus(count, None if count else "The NVIDIA driver lists no GPU.")
    return Gpus(0, "There is no NVIDIA driver on this machine.")


def bundled_telemetry() -> Path | None:
    """Return the telemetry that ships with Sawtooth, for a replay; None if it is missing."""
    path = SAMPLES / REPLAYED / "nvml.jsonl"
    return path if path.is_file() else None


def sample_command(live: Path, server_pid: int) -> list[str]:
    """Return the command that samples this machine until it is stopped or the server ends."""
    return children.command("sawtooth.ingest.sampler", "--out", str(live), "--watch-pid", str(server_pid))


def replay_command(live: Path, recording: Path) -> list[str]:
    """Return the command that plays a recording into a new session."""
    options = [
        "--replay",
        str(recording),
        "--loop",
        "--seconds",
        str(MAX_REPLAY_S),
        "--name",
        f"replay of {recording.parent.name}",
    ]
    return children.command("sawtooth.ingest.sampler", "--out", str(live), *options)


class LocalSampler:
    """At most one sampler of this server; all methods are thread-safe."""

    def __init__(self, popen: Callable[..., subprocess.Popen[str]] = subprocess.Popen) -> None:
        self._popen = popen
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.trouble: str | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the running sampler, else None."""
        with self._lock:
            return self._process.pid if self._running() and self._process else None

    def start(self, command: Sequence[str]) -> int:
        """Start the sampler unless it runs already; return its process id."""
        with self._lock:
            if self._running() and self._process is not None:
                return self._process.pid
            self.trouble = None
            self._process = self._popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=children.inherited_environment(),
            )
            threading.Thread(target=self._keep_last_message, args=(self._process,), daemon=True).start()
            return self._process.pid

    def stop(self) -> None:
        """Stop the sampler; the session is complete when this returns."""
        with self._lock:
            process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(OSError):
            process.terminate()
            try:
                process.wait(MAX_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _keep_last_message(self, process: subprocess.Popen[str]) -> None:
        """Store the last message of a sampler that ended by itself."""
        last = ""
        with contextlib.suppress(OSError, ValueError), process.stderr or contextlib.nullcontext(()) as stderr:
            for line in stderr:
                last = line.strip()
        if process.wait() not in (0, -15):
            self.trouble = last.removeprefix("sawtooth sample: ") or "The sampler ended without a message."


@lru_cache(maxsize=1)
def local_sampler() -> LocalSampler:
    """Return this server's sampler."""
    return LocalSampler()


def start_sampling() -> int:
    """Sample this machine's GPUs into the data folder."""
    return local_sampler().start(sample_command(settings().data.create().live, os.getpid()))


def start_replay() -> int | None:
    """Replay the bundled recording into the data folder; None if the installation has none."""
    recording = bundled_telemetry()
    return local_sampler().start(replay_command(settings().data.create().live, recording)) if recording else None
