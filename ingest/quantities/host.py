"""Sampled quantities of the host: cores, training process, loader workers, memory, disks, network.

The table ``host_samples`` has one row per time. Percentages of a process are of one core, so 250 means that two and a half cores are busy.
"""

from __future__ import annotations

from sawtooth.ingest.quantities.quantity import MEMORY, PERCENT, TRAFFIC, Quantity, ValueRange

COUNT = ValueRange(0, 65_536)  # Cores of a host or processes of a job. The largest hosts have some thousand cores.
OF_ONE_CORE = ValueRange(0, 6_553_600)  # In percent of one core, for as many cores as COUNT allows.


def _row(
    column: str,
    unit: str,
    label: str,
    description: str,
    possible: ValueRange,
    panel: str | None = None,
    *,
    is_integer: bool = False,
) -> Quantity:
    return Quantity(column, unit, label, description, possible, {}, panel=panel, mean=True, is_integer=is_integer)


HOST: tuple[Quantity, ...] = (
    _row("cpu_pct", "percent", "CPU", "Share of time in which the host's cores worked, percent of all cores", PERCENT, "host"),
    _row("cpu_busiest_pct", "percent", "busiest core", "Share of time in which the busiest core worked, percent", PERCENT),
    _row("cpu_usable_pct", "percent", "cores of the training", "Share of time in which the cores that the training process may use worked, percent; unknown if a container's limit is below their number", PERCENT),
    _row("cpu_group_busiest_pct", "percent", "busiest core group", "Share of time in which the busiest group of cores (a memory node, such as a socket) worked, percent; only on hosts with several groups", PERCENT),
    _row("cpu_io_wait_pct", "percent", "waiting for disks", "Share of time in which cores were idle and waited for disks, percent of all cores (Linux)", PERCENT),
    _row("run_queue", "count", "running or ready", "Tasks of the host that ran or were ready to run, without the sampler; if they are more than the cores, some wait for a core (Linux)", COUNT),
    _row("cpu_pressure_pct", "percent", "tasks waiting for a core", "Share of time in which at least one task of the host was ready but had no core, percent (Linux, /proc/pressure)", PERCENT),
    _row("io_pressure_pct", "percent", "tasks waiting for a disk", "Share of time in which at least one task of the host waited for a disk or a file system, percent (Linux, /proc/pressure)", PERCENT),
    _row("memory_pressure_pct", "percent", "tasks waiting for memory", "Share of time in which at least one task of the host waited for memory, percent (Linux, /proc/pressure)", PERCENT),
    _row("cores", "count", "cores", "Cores that the training process may use", COUNT, is_integer=True),
    _row("main_cpu_pct", "percent", "training process", "CPU time of all threads of the training process, percent of one core; the busiest, if there are several processes", OF_ONE_CORE),
    _row("main_waits_pct", "percent", "training waiting for a core", "Share of time in which the training's main thread was ready to run but had no core, percent; the largest, if there are several processes (Linux)", PERCENT),
    _row("workers", "count", "loader workers", "Loader workers: processes without a GPU that the training process started", COUNT, is_integer=True),
    _row("workers_cpu_pct", "percent", "loader worker", "Mean CPU time of a loader worker, percent of one core", OF_ONE_CORE, "host"),
    _row("workers_blocked_pct", "percent", "workers waiting for disks", "Share of the loader workers that were in an uninterruptible wait (for a disk), percent", PERCENT, "host"),
    _row("ram_used_bytes", "bytes", "host memory in use", "Host memory that programs use, bytes", MEMORY, is_integer=True),
    _row("ram_total_bytes", "bytes", "host memory", "Host memory, bytes", MEMORY, is_integer=True),
    _row("swap_used_bytes", "bytes", "swap in use", "Swap in use, bytes", MEMORY, is_integer=True),
    _row("swap_in_bps", "bytes/s", "swapped in", "Memory read back from swap, bytes per second", TRAFFIC),
    _row("disk_read_bps", "bytes/s", "disk reads", "Read from disks, bytes per second, without reads from the page cache", TRAFFIC),
    _row("disk_write_bps", "bytes/s", "disk writes", "Written to disks, bytes per second", TRAFFIC),
    _row("disk_busy_pct", "percent", "busiest disk", "Share of time in which the busiest disk had requests, percent", PERCENT, "host"),
    _row("network_received_bps", "bytes/s", "network received", "Received over the network, bytes per second, without loopback", TRAFFIC),
    _row("network_sent_bps", "bytes/s", "network sent", "Sent over the network, bytes per second, without loopback", TRAFFIC),
)  # fmt: skip
