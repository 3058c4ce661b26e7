"""End a training with all its processes, and wait until its ports and GPU memory are free."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from sawtooth.ingest.capture.command.settings import FOLDER
from sawtooth.ingest.loop.command import PYTHON

HELPERS = ("resource_tracker", "torch_shm_manager")  # These processes clean up after killed processes. They end by themselves.
MAX_END_S = 20.0  # Time limit for the end of processes. A process with tens of GB of GPU memory takes some seconds.
# Linux keeps a closed connection for a minute. A server without SO_REUSEADDR cannot use the connection's port until then.
MAX_CLOSING_S = 65.0
CLOSING = (psutil.CONN_TIME_WAIT, psutil.CONN_FIN_WAIT1, psutil.CONN_FIN_WAIT2, psutil.CONN_CLOSING, psutil.CONN_LAST_ACK)
MAX_NVIDIA_SMI_S = 10.0  # nvidia-smi usually answers within a second.
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")  # First and last port that Linux assigns itself.
STOP_SIGNALS = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in signal.Signals.__members__)


@contextlib.contextmanager
def delayed_stop() -> Iterator[None]:
    """Handle a signal to stop only after the block, so that the block can note a process that it starts."""
    if threading.current_thread() is not threading.main_thread():  # Only the main thread gets signals.
        yield
        return
    received: list[int] = []
    before = {number: signal.signal(number, lambda sent, _: received.append(sent)) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


class Training:
    """The processes of one run.

    These are the first process, its children, and processes with the run's folder in a variable.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process, self._folder = process, str(folder)

    def processes(self) -> list[psutil.Process]:
        """Return the living processes of the run."""
        by_pid: dict[int, psutil.Process] = {}
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(self._process.pid)
            by_pid = {process.pid: process for process in (first, *first.children(recursive=True))}
        user = psutil.Process().username()
        for process in psutil.process_iter(["username"]):
            if process.pid not in by_pid and process.info["username"] == user and process.pid != psutil.Process().pid:
                with contextlib.suppress(psutil.Error):
                    if process.environ().get(FOLDER) == self._folder:
                        by_pid[process.pid] = process
        return [process for process in by_pid.values() if _lives(process)]

    def runs_python(self) -> bool:
        """Return whether the first process or one of its children is a Python."""
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(self._process.pid)
            return any(_is_python(process) for process in (first, *first.children(recursive=True)))
        return False

    def memory_bytes(self) -> int:
        """Return the memory of the first process and its children; shared memory counts once if known."""
        total = 0
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(self._process.pid)
            for process in (first, *first.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    memory = process.memory_full_info()
                    total += getattr(memory, "pss", memory.rss)
        return total

    def end(self) -> list[str]:
        """Kill the run's processes and wait until they, their ports and their GPU memory are gone.

        Returns a sentence about each process, port and memory that remains. The processes are killed, because many scripts save
        a checkpoint when they get SIGTERM.
        """
        processes = self.processes()
        ports = _ports(processes)
        helpers = [process for process in processes if _is_helper(process)]
        for process in processes:
            if process not in helpers:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(MAX_END_S)
        _, remaining = psutil.wait_procs(processes, timeout=2.0 if helpers else MAX_END_S)
        remaining = sorted({*remaining, *self.processes()}, key=lambda process: process.pid)
        for process in remaining:
            with contextlib.suppress(psutil.Error):
                process.kill()
        _, remaining = psutil.wait_procs(remaining, timeout=MAX_END_S)
        return [
            *(f"Process {process.pid} does not end." for process in remaining if _lives(process)),
            *_still_taken(ports),
            *_still_on_gpu([process.pid for process in processes]),
        ]


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _is_helper(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(helper in word for word in process.cmdline() for helper in HELPERS)
    return False


def _is_python(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return PYTHON.fullmatch(Path(process.exe()).name) is not None
    return False


def _ports(processes: Sequence[psutil.Process]) -> set[int]:
    """Return the ports on which ``processes`` listen, without those that the system assigned.

    The next run gets other ports from the system.
    """
    ports = set()
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            connections = process.net_connections("tcp")
            ports |= {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}
    assigned = _assigned_ports()
    return {port for port in ports if port not in assigned}


def _assigned_ports() -> range:
    """Return the ports that the system assigns itself; none if they are not known."""
    with contextlib.suppress(OSError, ValueError):
        low, high = map(int, PORT_RANGE.read_text().split())
        return range(low, high + 1)
    return range(0)


def wait_for_closed_connections() -> None:
    """Wait until Linux has removed closed connections to servers of this machine, at most MAX_CLOSING_S."""
    deadline, assigned = time.monotonic() + MAX_CLOSING_S, _assigned_ports()
    while time.monotonic() < deadline:
        connections = psutil.net_connections("tcp")
        if not any(connection.status in CLOSING and connection.laddr.port not in assigned for connection in connections):
            return
        time.sleep(1.0)


def _still_taken(ports: set[int]) -> list[str]:
    deadline = time.monotonic() + MAX_END_S
    while taken_ports := [port for port in sorted(ports) if not _is_free(port)]:
        if time.monotonic() > deadline:
            return [f"Port {port} is still in use." for port in taken_ports]
        time.sleep(0.1)
    return []


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            return False
        return True


def _still_on_gpu(pids: Sequence[int]) -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    deadline = time.monotonic() + MAX_END_S
    while holders := set(pids) & _pids_on_gpu():
        if time.monotonic() > deadline:
            return [f"Process {pid} still holds GPU memory." for pid in sorted(holders)]
        time.sleep(0.5)
    return []


def _pids_on_gpu() -> set[int]:
    words = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run(words, capture_output=True, text=True, timeout=MAX_NVIDIA_SMI_S, check=False)
        return {int(line) for line in listed.stdout.split() if line.isdecimal()}
    return set()
