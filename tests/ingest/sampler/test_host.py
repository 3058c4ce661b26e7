"""Tests of host samples, which are rates of psutil's counters."""

from __future__ import annotations

from types import SimpleNamespace as Answer

import duckdb
import pytest

from sawtooth.ingest.quantities.registry import HOST_COLUMNS, possible_value
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.sampler import host as host_module
from sawtooth.ingest.sampler.host import HostReader
from sawtooth.ingest.sampler.sinks import PlainSink
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.telemetry.session import write_session_file
from tests.support.sampler_bench import Bench, recorded

SECOND = 10**9
TRAIN = ["python", "train.py"]


class GoneError(Exception):
    pass


class Process:
    """A process that uses ``share`` of a core."""

    def __init__(self, host, pid, share, line=TRAIN, parent=1, status="sleeping"):
        self.host, self.pid, self.share, self.line, self.parent, self.state = host, pid, share, line, parent, status

    def cpu_times(self):
        if self.pid not in self.host.processes:
            raise GoneError
        return Answer(user=self.share * self.host.now_s, system=0.0)

    def cmdline(self):
        return self.line

    def ppid(self):
        return self.parent

    def status(self):
        return self.state

    def children(self, recursive):
        own = [p for p in self.host.processes.values() if p.parent == self.pid]
        return own + [below for child in own for below in child.children(recursive)]


class FakeHost:
    """psutil's answers on a host of four cores, one of which waits for disks."""

    Error, STATUS_DISK_SLEEP = GoneError, "disk-sleep"

    def __init__(self):
        self.now_s = 0.0
        self.processes = {7: Process(self, 7, 1.0)}
        for pid, share, status in ((8, 0.2, "disk-sleep"), (9, 0.4, "running")):
            self.processes[pid] = Process(self, pid, share, parent=7, status=status)
        self.processes[10] = Process(
            self, 10, 0.0, ["python", "-c", "from multiprocessing.resource_tracker import main"], parent=7
        )
        self.processes[11] = Process(self, 11, 0.0, ["python", "torch/_inductor/compile_worker/__main__.py"], parent=7)

    def pid_exists(self, pid):
        return pid in self.processes

    def Process(self, pid):  # noqa: N802 - psutil's name
        if pid not in self.processes:
            raise GoneError
        return self.processes[pid]

    def cpu_times_percent(self, interval, percpu):
        return [Answer(idle=i, iowait=w) for i, w in ((0.0, 0.0), (50.0, 0.0), (60.0, 40.0), (90.0, 0.0))]

    def virtual_memory(self):
        return Answer(total=64 << 30, available=16 << 30)

    def swap_memory(self):
        return Answer(used=1 << 30, sin=4096 * self.now_s)

    def disk_io_counters(self, perdisk):
        return {
            name: Answer(read_bytes=read * self.now_s, write_bytes=0, busy_time=busy * self.now_s)
            for name, read, busy in (
                ("sda", 100.0, 250),
                ("sda1", 100.0, 250),
                ("nvme0n1", 50.0, 900),
                ("nvme0n1p2", 50.0, 900),
                ("dm-0", 9.0, 999),
            )
        }

    def net_io_counters(self, pernic):
        return {name: Answer(bytes_recv=10 * self.now_s, bytes_sent=2 * self.now_s) for name in ("lo", "eth0")}


def read_twice(host, reader, on_gpu=()):
    assert reader.read(0, on_gpu) is None
    host.now_s = 2.0
    return reader.read(2 * SECOND, on_gpu)


def test_counters_become_rates():
    host = FakeHost()
    found = read_twice(host, HostReader([7], host))
    assert found["cpu_pct"] == pytest.approx((100 + 50 + 0 + 10) / 4)
    assert (found["cpu_busiest_pct"], found["cpu_io_wait_pct"]) == (100.0, 10.0)
    assert (found["disk_read_bps"], found["disk_busy_pct"]) == (
        150.0,
        90.0,
    )  # Partitions do not count, because they are parts of a disk.
    assert (found["network_received_bps"], found["network_sent_bps"]) == (10.0, 2.0)  # The loopback interface does not count.
    assert (found["ram_used_bytes"], found["swap_in_bps"]) == (48 << 30, 4096.0)
    assert set(found) <= set(HOST_COLUMNS) and all(possible_value(column, value) is not None for column, value in found.items())


def test_allowed_cores_are_distinguished_from_those_of_the_host(monkeypatch, tmp_path):
    """Four cores have loads of 100, 50, 0 and 10 %.

    The training may use the first two, which are the first socket.
    """
    monkeypatch.setattr(host_module, "allowed_cores", lambda pid: frozenset({0, 1}) if pid == 7 else frozenset(range(4)))
    monkeypatch.setattr(host_module, "usable_cores", lambda pid, proc: 2)
    monkeypatch.setattr(host_module, "core_groups", lambda: [frozenset({0, 1}), frozenset({2, 3})])
    host = FakeHost()
    found = read_twice(host, HostReader([7], host))
    assert (found["cpu_pct"], found["cpu_usable_pct"], found["cpu_group_busiest_pct"], found["cores"]) == (
        40.0,
        75.0,
        75.0,
        2.0,
    )
    # The use of a container's limit of two cores is not known.
    monkeypatch.setattr(host_module, "usable_cores", lambda pid, proc: 1)
    assert "cpu_usable_pct" not in read_twice(host, HostReader([7], host))


def test_workers_are_distinguished_from_helpers_and_the_training():
    host = FakeHost()
    found = read_twice(host, HostReader([], host), on_gpu=[7])
    assert (found["main_cpu_pct"], found["workers"], found["workers_cpu_pct"], found["workers_blocked_pct"]) == (
        100.0,
        2.0,
        30.0,
        50.0,
    )


def test_waits_of_the_main_thread_for_a_core_are_measured(tmp_path):
    host, reported = FakeHost(), tmp_path / "7/task/7/schedstat"
    reported.parent.mkdir(parents=True)
    reported.write_text("5000000000 1000000000 40\n")
    reader = HostReader([7], host, tmp_path)
    assert reader.read(0) is None
    host.now_s = 2.0
    reported.write_text("6000000000 1600000000 70\n")
    assert reader.read(2 * SECOND)["main_waits_pct"] == pytest.approx(30.0)  # 0.6 s of 2 s
    reported.write_text("0 0 0\n")  # A kernel that does not count waits.
    assert "main_waits_pct" not in reader.read(4 * SECOND)


def test_tasks_that_wait_for_core_disk_or_memory_are_counted(tmp_path):
    host, pressure = FakeHost(), tmp_path / "pressure"
    pressure.mkdir()
    (tmp_path / "loadavg").write_text("5.10 3.20 2.00 6/310 4242\n")
    for what, total_us in (("cpu", 1_000_000), ("io", 0)):
        (pressure / what).write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}\nfull total=77\n")
    reader = HostReader([7], host, tmp_path)
    assert reader.read(0) is None
    host.now_s = 2.0
    (pressure / "cpu").write_text("some avg10=9.00 avg60=0.00 avg300=0.00 total=1500000\nfull total=99\n")
    found = reader.read(2 * SECOND)
    assert found["run_queue"] == 5.0  # Six tasks run, of which one is the sampler.
    assert found["cpu_pressure_pct"] == pytest.approx(25.0)  # 0.5 s of 2 s
    assert found["io_pressure_pct"] == 0.0
    assert "memory_pressure_pct" not in found


def test_only_processes_of_the_followed_command_count():
    host = FakeHost()
    host.processes[50] = Process(host, 50, 3.0)  # Somebody else's process on the GPU.
    host.processes[5] = Process(host, 5, 0.0, ["torchrun", "train.py"])
    host.processes[7].parent = 5
    found = read_twice(host, HostReader([5], host), on_gpu=[7, 50])
    assert (found["main_cpu_pct"], found["workers"]) == (100.0, 2.0)
    host.now_s, reader = 1.0, HostReader([5], host)
    reader.read(0)
    host.now_s = 3.0
    assert reader.read(2 * SECOND)["main_cpu_pct"] == 100.0, (
        "the main process is the training, and not the launcher that waits for the training"
    )
    unseen = read_twice(FakeHost(), HostReader([7], FakeHost()), on_gpu=[99])  # PIDs of another process namespace
    assert unseen["workers"] == 2.0


def test_sampling_continues_if_processes_end():
    host = FakeHost()
    reader = HostReader([7], host)
    read_twice(host, reader)
    del host.processes[8], host.processes[7]
    host.disk_io_counters = None
    host.now_s = 3.0
    found = reader.read(3 * SECOND)
    assert "workers" not in found and "disk_read_bps" not in found and found["cpu_pct"] == 40.0
    assert reader.read(3 * SECOND + 1) is None  # Host samples are taken once a second.
    assert HostReader([7], psutil=None).read(0) is None


def test_a_recording_of_a_session_has_host_samples(tmp_path):
    bench = Bench()
    bench.sampler.host = HostReader([7], FakeHost())
    session = recorded(tmp_path / "live", 5, bench=bench)
    write_session_file(session, tmp_path / "session.jsonl")
    assert host_rows(tmp_path, tmp_path / "session.jsonl") == (4, 40.0, 2)


def test_a_recording_of_plain_lines_has_host_samples(tmp_path):
    bench, path = Bench(), tmp_path / "plain.jsonl"
    bench.sampler.host = HostReader([7], FakeHost())
    bench.sampler.sinks = [PlainSink(lambda: path.open("wb"), 0.1)]
    bench.sampler.run(5)
    assert host_rows(tmp_path, path) == (4, 40.0, 2)


def host_rows(tmp_path, path):
    folder = DataFolder(tmp_path / "data").create()
    ref = ingest_file(path, folder)
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        return con.execute("SELECT count(*), avg(cpu_pct), max(workers) FROM host_samples").fetchone()
