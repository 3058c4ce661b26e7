"""Tests of reading sessions while they grow and after damage, on clocks that jump or drift."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.telemetry.session import SessionClock, SessionReader, SessionTable
from tests.support.sampler_bench import Bench, recorded
from tests.support.sessions import read_session

POWER_SAMPLES = 0  # NVML's type of power samples in a driver buffer
SEQUENCE = "q"  # The key of the number of a record.


def tick(number: int, values: list[list[float]], buffers: list[list[Any]]) -> dict[str, Any]:
    """Return a record of polled ``values`` and driver ``buffers`` at ``number`` ns.

    A buffer is (device, column, times, values).
    """
    return {"k": "tick", "m": number, "w": number, "q": number, "g": values, "s": buffers}


def test_session_has_samples_of_all_devices(tmp_path: Path) -> None:
    table = read_session(recorded(tmp_path))
    columns = table.columns()
    assert table.driver_version == "580.159.04" and table.devices[1]["uuid"] == "GPU-b"
    assert (columns["device"] == 0).sum() == 50
    assert set(np.diff(columns["time_ns"][columns["device"] == 0])) == {100_000_000}
    assert np.nanmax(columns["tensor_active_pct"]) == 5.0 and np.isnan(columns["tensor_active_pct"][0])
    assert columns["mem_total_bytes"][0] == 150_754_820_096
    assert not table.diagnostics.get("lost_records")


def test_processes_by_device(tmp_path: Path) -> None:
    table = read_session(recorded(tmp_path))
    assert table.metadata["processes"] == {"0": [4_000_000_000], "1": [4_000_000_000]}


def test_buffered_values_replace_polled_values(tmp_path: Path) -> None:
    bench = Bench(("GPU-a",))

    def unix_us() -> int:
        return (bench.time.m + bench.time.offset) // 1000  # m: ns of the monotonic clock

    start_us = unix_us()
    rows = [(start_us + i * 20_000, 300_000) for i in range(-50, 1000)]

    def fill() -> None:
        bench.nvml.buffer["GPU-a", POWER_SAMPLES] = [row for row in rows if row[0] <= unix_us()]

    fill()
    columns = read_session(recorded(tmp_path, 6, *((k * 0.1, fill) for k in range(60)), bench=bench)).columns()
    power = columns["power_w"][~np.isnan(columns["power_w"])]
    # The buffer's samples are 300 W. Outside the time of the buffer, the polled 506.727 W remain.
    assert (power == 300.0).sum() >= 200 and (power == 506.727).sum() < 25
    assert (columns["util_pct"] == 71).sum() == 30  # The driver updates utilization every 200 ms.


def test_growing_session_is_read_line_by_line(tmp_path: Path) -> None:
    whole = recorded(tmp_path / "whole")
    content = (whole / "samples-0001.jsonl").read_bytes()
    grown = tmp_path / "grown"
    grown.mkdir()
    (grown / "meta.json").write_bytes((whole / "meta.json").read_bytes())
    reader, records = SessionReader(grown), []
    sizes = sorted(random.Random(3).sample(range(len(content)), 40))
    for size in [*sizes, len(content)]:
        (grown / "samples-0001.jsonl").write_bytes(content[:size])
        records += reader.poll()
    assert reader.damaged == 0 and reader.ended == "time"
    assert [record[SEQUENCE] for record in records] == list(range(len(records)))
    assert records == SessionReader(whole).poll()


def test_incomplete_last_line_is_never_read(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    path = folder / "samples-0001.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    (folder / "samples-0002.jsonl").write_bytes(content.splitlines(keepends=True)[3])
    reader = SessionReader(folder)
    records = reader.poll()
    assert reader.damaged == 1 and reader.ended is None
    assert records[-1][SEQUENCE] == 3
    assert reader.poll() == []


@pytest.mark.parametrize("device", [10**12, -1, "x", 0.5, None])
def test_invalid_device_drops_only_its_own_buffer(device: Any) -> None:
    table = SessionTable(columns=["util_pct"])
    ticks = [tick(number, [[50.0]], [[device, "power_w", [number], [300.0]]]) for number in range(5)]
    table.add([*ticks, tick(9, [], [[0, "power_w", [10**30, -1], [1.0, 2.0]]])])
    columns = table.table().columns()
    assert set(columns["device"]) == {0} and np.isnan(columns["power_w"]).sum() == len(columns["power_w"]) == 5
    assert table.table().diagnostics["line_unreadable"].count == 7  # 5 buffers of the device, 2 times out of range


@pytest.mark.parametrize("seed", range(20))
def test_damaged_bytes_lose_only_their_lines(tmp_path: Path, seed: int) -> None:
    folder = recorded(tmp_path)
    path = folder / "samples-0001.jsonl"
    content = bytearray(path.read_bytes())
    good = len(bytes(content).splitlines())
    start = random.Random(seed).randrange(len(content) - 40)
    for i in range(start, start + 32):
        content[i] ^= 0x55
    path.write_bytes(bytes(content))
    reader = SessionReader(folder)
    assert good - 3 <= len(reader.poll()) < good
    table = read_session(folder)
    assert table.diagnostics["damaged_lines"].severity == "data_loss"


def test_gap_has_its_reason(tmp_path: Path) -> None:
    bench = Bench(("GPU-a",))
    table = read_session(recorded(tmp_path, 5, (2, lambda: bench.time.advance(1.0)), bench=bench))
    ((device, start, end, reason),) = table.gaps
    assert device == 0 and 1.0e9 <= end - start <= 1.2e9 and reason == "the sampler was not scheduled"


def test_wall_clock_jump_moves_no_sample(tmp_path: Path) -> None:
    bench = Bench(("GPU-a",))

    def jump() -> None:
        bench.time.offset -= 3600 * 10**9

    table = read_session(recorded(tmp_path, 5, (2, jump), bench=bench))
    assert set(np.diff(table.columns()["time_ns"])) == {100_000_000}
    assert "clock_step" in table.diagnostics


def test_session_clock_follows_slow_drift() -> None:
    clock = SessionClock()
    for i in range(10_000):  # A drift of 500 ppm, half a second in 1000 s.
        m = i * 100_000_000
        assert clock.time_ns(m, 10**18 + m + m // 2000) == 10**18 + m + m // 2000
    assert clock.steps == 0


def test_folder_without_session_raises(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"meta\.json"):
        read_session(tmp_path)
