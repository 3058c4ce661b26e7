"""Sampled quantities of the host: cores, training process, loader workers, memory, disks, network.

Table ``host_samples`` has one row per time and host. Percentages of a process are of one core: 250 means that two and a half
cores are busy.
"""

from __future__ import annotations

from sawtooth.ingest.quantities.quantity import MEMORY, PERCENT, TRAFFIC, Quantity, ValueRange

COUNT = ValueRange(0, 65_536)  # cores of a host, processes of a job: the largest hosts have some thousands
OF_ONE_CORE = ValueRange(0, 6_553_600)


def _row(
    column: str, unit: str, label: str, about: str, possible: ValueRange, panel: str | None = None, *, whole: bool = False
) -> Quantity:
    return Quantity(column, unit, label, about, possible, {}, panel=panel, mean=True, whole=whole)


HOST: tuple[Quantity, ...] = (
    _row("cpu_pct", "percent", "CPU", "Time that the host's cores worked, percent of all of them", PERCENT, "host"),
    _row("cpu_busiest_pct", "percent", "busiest core", "Time that the busiest core worked, percent", PERCENT),
    _row("cpu_usable_pct", "percent", "cores of the training", "Time that the cores which the training process may use worked, percent of them; not told where a container's limit is less than these", PERCENT),
    _row("cpu_group_busiest_pct", "percent", "busiest core group", "Time that the busiest group of cores (a memory node, such as a socket) worked, percent of its cores; on hosts of several", PERCENT),
    _row("cpu_io_wait_pct", "percent", "waiting for disks", "Time that cores were idle while disks were waited for, percent of all cores (Linux)", PERCENT),
    _row("run_queue", "count", "running or ready", "Tasks of the host that ran or were ready to run, the sampler left out; more than the cores wait for one (Linux)", COUNT),
    _row("cpu_pressure_pct", "percent", "tasks waiting for a core", "Time that some task of the host was ready and had no core, percent (Linux, /proc/pressure)", PERCENT),
    _row("io_pressure_pct", "percent", "tasks waiting for a disk", "Time that some task of the host waited for a disk or its file system, percent (Linux, /proc/pressure)", PERCENT),
    _row("memory_pressure_pct", "percent", "tasks waiting for memory", "Time that some task of the host waited for memory, percent (Linux, /proc/pressure)", PERCENT),
    _row("cores", "count", "cores", "Cores that the training process may use", COUNT, whole=True),
    _row("main_cpu_pct", "percent", "training process", "CPU time of the training process, all threads, percent of one core; of several, the busiest", OF_ONE_CORE),
    _row("main_waits_pct", "percent", "training waiting for a core", "Time that the training's main thread was ready to run and had no core, percent; of several processes, the most (Linux)", PERCENT),
    _row("workers", "count", "loader workers", "Processes that the training process started and that use no GPU: data loader workers", COUNT, whole=True),
    _row("workers_cpu_pct", "percent", "loader worker", "CPU time of a loader worker, percent of one core, mean over the workers", OF_ONE_CORE, "host"),
    _row("workers_blocked_pct", "percent", "workers waiting for disks", "Share of the loader workers that were in an uninterruptible wait (disk), percent", PERCENT, "host"),
    _row("ram_used_bytes", "bytes", "host memory in use", "Host memory that programs use, bytes", MEMORY, whole=True),
    _row("ram_total_bytes", "bytes", "host memory", "Host memory, bytes", MEMORY, whole=True),
    _row("swap_used_bytes", "bytes", "swap in use", "Swap in use, bytes", MEMORY, whole=True),
    _row("swap_in_bps", "bytes/s", "swapped in", "Read back from swap, bytes per second", TRAFFIC),
    _row("disk_read_bps", "bytes/s", "disk reads", "Read from disks, bytes per second; what the page cache held is not in it", TRAFFIC),
    _row("disk_write_bps", "bytes/s", "disk writes", "Written to disks, bytes per second", TRAFFIC),
    _row("disk_busy_pct", "percent", "busiest disk", "Time that the busiest disk had requests, percent", PERCENT, "host"),
    _row("network_received_bps", "bytes/s", "network received", "Received over the network, bytes per second, loopback left out", TRAFFIC),
    _row("network_sent_bps", "bytes/s", "network sent", "Sent over the network, bytes per second, loopback left out", TRAFFIC),
)  # fmt: skip
