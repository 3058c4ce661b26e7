"""Host readings once a second: cores, training process, loader workers, memory, swap, disks, network.

Linux reports all of these values. Values that another system does not report are missing. Without psutil, no host values are sampled.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sawtooth.ingest.loop.cores import allowed_cores, core_groups, usable_cores

PERIOD_NS = 10**9  # The kernel counts CPU time in hundredths of a second, so shorter windows are not precise.
JITTER_NS = 50_000_000  # A reading may be early by this time.
# Time between searches for child processes. A search reads every process of the host (some milliseconds).
SEARCH_NS = 5 * 10**9
MAX_WORKERS = 512  # The CPU time of at most this many loader workers is read. No training is expected to have more.
# These devices have no disk of their own, or are built from other disks, which are counted already.
VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr")
SPAWN_MODULE = "multiprocessing.spawn"  # The command lines of spawned workers contain this module.
# A process with one of these words in its command line is not a loader worker.
HELPERS = ("resource_tracker", "forkserver", "compile_worker")


class HostReader:
    """Reader of the host's values. Rates are means since the last reading.

    ``roots`` are processes to follow besides the processes on a GPU, such as the command that the sampler started or watches.
    """

    def __init__(self, roots: Iterable[int] = (), psutil: Any = None, proc: Path = Path("/proc")) -> None:
        try:
            self._psutil = psutil or importlib.import_module("psutil")
        except ImportError:
            self._psutil = None
        self._roots, self._proc = tuple(roots), proc
        self._groups = core_groups()
        self._due_ns = 0
        self._last_ns: int | None = None
        self._totals: dict[str, float] = {}
        self._processes: dict[int, tuple[Any, float]] = {}  # The psutil process and the CPU seconds it had used, by PID.
        self._search_ns = 0
        self._workers: list[int] = []
        self._descendants: frozenset[int] = frozenset()
        self._busiest: frozenset[int] = frozenset()

    @property
    def is_available(self) -> bool:
        """Return whether the host can be read, which needs psutil."""
        return self._psutil is not None

    def follow(self, roots: Iterable[int]) -> None:
        """Follow these processes and their descendants."""
        self._roots = tuple(roots)

    def read(self, now_ns: int, on_gpu: Iterable[int] = ()) -> dict[str, float] | None:
        """Return values by the names in HOST_COLUMNS; None without psutil, or before the next reading is due.

        The first reading returns None, because it only stores the counters for the rates.
        """
        if self._psutil is None or now_ns < self._due_ns:
            return None
        self._due_ns = now_ns + PERIOD_NS - JITTER_NS
        elapsed = (now_ns - self._last_ns) / 1e9 if self._last_ns is not None else 0.0
        self._last_ns = now_ns
        values: dict[str, float] = {}
        readers = (
            self._cores,
            self._queue,
            self._memory,
            self._traffic,
            lambda elapsed: self._process_readings(now_ns, elapsed, set(on_gpu)),
        )
        for read_values in readers:
            try:
                values |= read_values(elapsed)
            except (self._psutil.Error, OSError, AttributeError, RuntimeError, OverflowError, TypeError, ValueError):
                continue  # This system does not report these values. The others are still read.
        return {column: round(value, 3) for column, value in values.items()} if elapsed else None

    def _rate(self, name: str, total: float, elapsed: float) -> float | None:
        previous, self._totals[name] = self._totals.get(name), total
        return (total - previous) / elapsed if previous is not None and elapsed and total >= previous else None

    def _cores(self, elapsed: float) -> dict[str, float]:
        cores = self._psutil.cpu_times_percent(interval=None, percpu=True)
        busy = [100.0 - core.idle - getattr(core, "iowait", 0.0) for core in cores]
        readings = {"cpu_pct": sum(busy) / len(busy), "cpu_busiest_pct": max(busy)}
        if hasattr(cores[0], "iowait"):
            readings["cpu_io_wait_pct"] = sum(core.iowait for core in cores) / len(cores)
        pid = next(iter(self._roots), 0)
        allowed, usable = allowed_cores(pid), usable_cores(pid, self._proc)
        if usable_busy := [share for core, share in enumerate(busy) if core in allowed and usable >= len(allowed)]:
            readings["cpu_usable_pct"] = sum(usable_busy) / len(usable_busy)
        groups = [[busy[core] for core in group if core < len(busy)] for group in self._groups]
        if groups and all(groups):
            readings["cpu_group_busiest_pct"] = max(sum(group) / len(group) for group in groups)
        return readings | {"cores": float(usable)}

    def _queue(self, elapsed: float) -> dict[str, float]:
        """Return the number of runnable tasks, without the sampler, and the shares of waiting time (%).

        There is a share for each resource. Only Linux reports these values.
        """
        readings: dict[str, float] = {}
        with contextlib.suppress(OSError, ValueError, IndexError):
            running = (self._proc / "loadavg").read_text().split()[3]
            readings["run_queue"] = max(float(running.partition("/")[0]) - 1.0, 0.0)
        for resource in ("cpu", "io", "memory"):
            # Kernels before 4.20, and some later ones, have no pressure files.
            with contextlib.suppress(OSError, ValueError, IndexError):
                line = (self._proc / f"pressure/{resource}").read_text().splitlines()[0]
                rate = self._rate(f"pressure {resource}", int(line.rpartition("total=")[2]) / 1e6, elapsed)
                if rate is not None:
                    readings[f"{resource}_pressure_pct"] = min(100.0 * rate, 100.0)
        return readings

    def _memory(self, elapsed: float) -> dict[str, float]:
        memory, swap = self._psutil.virtual_memory(), self._psutil.swap_memory()
        readings = {"ram_used_bytes": float(memory.total - memory.available), "ram_total_bytes": float(memory.total)}
        readings["swap_used_bytes"] = float(swap.used)
        rate = self._rate("swap_in", float(swap.sin), elapsed)
        return readings | ({"swap_in_bps": rate} if rate is not None else {})

    def _traffic(self, elapsed: float) -> dict[str, float]:
        disks = self._psutil.disk_io_counters(perdisk=True) or {}
        disks = {
            name: disk for name, disk in disks.items() if not name.startswith(VIRTUAL_DISKS) and not _is_partition(name, disks)
        }
        network = self._psutil.net_io_counters(pernic=True) or {}
        network = {name: nic for name, nic in network.items() if name != "lo"}
        sums = {
            "disk_read_bps": sum(disk.read_bytes for disk in disks.values()),
            "disk_write_bps": sum(disk.write_bytes for disk in disks.values()),
            "network_received_bps": sum(nic.bytes_recv for nic in network.values()),
            "network_sent_bps": sum(nic.bytes_sent for nic in network.values()),
        }
        rates = {column: self._rate(column, float(total), elapsed) for column, total in sums.items()}
        busy = [
            self._rate(f"busy {name}", float(disk.busy_time) / 10, elapsed)
            for name, disk in disks.items()
            if hasattr(disk, "busy_time")
        ]
        rates["disk_busy_pct"] = max((min(share, 100.0) for share in busy if share is not None), default=None)
        return {column: rate for column, rate in rates.items() if rate is not None}

    def _process_readings(self, now_ns: int, elapsed: float, on_gpu: set[int]) -> dict[str, float]:
        if now_ns >= self._search_ns:
            self._search_ns = now_ns + SEARCH_NS
            self._search(on_gpu)
        followed = {*self._roots, *self._descendants}
        # Other jobs may use the GPUs too. In a container, the driver's PIDs can be of another PID namespace.
        mains = {pid for pid in (on_gpu & followed or self._busiest or self._roots or on_gpu) if self._psutil.pid_exists(pid)}
        if not mains:
            return {}
        cpu_pct = {pid: self._cpu(pid, elapsed) for pid in (*mains, *self._workers)}
        self._processes = {pid: process for pid, process in self._processes.items() if pid in cpu_pct}
        readings: dict[str, float] = {}
        if busy := [share for pid in mains if (share := cpu_pct[pid]) is not None]:
            readings["main_cpu_pct"] = max(busy)
        if waits := [share for pid in mains if (share := self._waits(pid, elapsed)) is not None]:
            readings["main_waits_pct"] = max(waits)
        living = [pid for pid in self._workers if pid in self._processes]
        readings["workers"] = float(len(living))
        if shares := [share for pid in living if (share := cpu_pct[pid]) is not None]:
            readings["workers_cpu_pct"] = sum(shares) / len(shares)
            readings["workers_blocked_pct"] = 100.0 * sum(self._blocked(pid) for pid in living) / len(living)
        return readings

    def _search(self, on_gpu: set[int]) -> None:
        """Find the descendants of the followed processes, and the loader workers among them."""
        descendants: dict[int, Any] = {}
        commands: dict[int, list[str]] = {}
        for root in self._roots or sorted(on_gpu):
            with contextlib.suppress(self._psutil.Error):
                commands[root] = self._psutil.Process(root).cmdline()
                descendants |= {process.pid: process for process in self._psutil.Process(root).children(recursive=True)}
        parents: dict[int, int] = {}
        for pid, process in descendants.items():
            with contextlib.suppress(self._psutil.Error):  # The process has just ended.
                commands[pid], parents[pid] = process.cmdline(), process.ppid()
        self._descendants = frozenset(descendants)
        workers = [
            pid for pid, parent in parents.items() if pid not in on_gpu and is_worker(commands[pid], commands.get(parent))
        ]
        self._workers = workers[:MAX_WORKERS]
        used_s = {pid: self._used_s(pid) for pid in (*self._roots, *descendants) if self._roots and pid not in workers}
        self._busiest = frozenset(sorted(used_s, key=lambda pid: -used_s[pid])[:1])  # The root may be a launcher, which waits.

    def _used_s(self, pid: int) -> float:
        try:
            times = self._psutil.Process(pid).cpu_times()
        except self._psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def _cpu(self, pid: int, elapsed: float) -> float | None:
        """Return the share (%) of one core that a process used since its last reading.

        The result is None at the first reading, and after the process has ended.
        """
        process, previous = self._processes.get(pid, (None, None))
        try:
            process = process or self._psutil.Process(pid)
            times = process.cpu_times()
        except self._psutil.Error:
            self._processes.pop(pid, None)
            return None
        total = times.user + times.system
        self._processes[pid] = (process, total)
        return 100.0 * max(total - previous, 0.0) / elapsed if previous is not None and elapsed else None

    def _waits(self, pid: int, elapsed: float) -> float | None:
        """Return the share (%) of time in which a process's main thread waited for a core; None if unknown."""
        try:
            ran_ns, waited_ns, _ = map(int, (self._proc / f"{pid}/task/{pid}/schedstat").read_text().split())
        except (OSError, ValueError):
            return None
        rate = self._rate(f"waits {pid}", waited_ns / 1e9, elapsed) if ran_ns else None
        return min(100.0 * rate, 100.0) if rate is not None else None

    def _blocked(self, pid: int) -> bool:
        try:
            return bool(self._processes[pid][0].status() == self._psutil.STATUS_DISK_SLEEP)
        except self._psutil.Error:
            return False


def is_worker(command: list[str], parent_command: list[str] | None) -> bool:
    """Return whether a process is a worker, by a command that equals the parent's or is multiprocessing's."""
    text = " ".join(command)
    return bool(command) and not any(word in text for word in HELPERS) and (command == parent_command or SPAWN_MODULE in text)


def _is_partition(name: str, disks: Iterable[str]) -> bool:
    """Return whether ``name`` is a partition of another disk, such as sda1 of sda or nvme0n1p2 of nvme0n1."""
    return any(name != disk and name.startswith(disk) and name[len(disk) :].lstrip("p").isdigit() for disk in disks)
