"""Sessions read back, while they grow and after damage; the clock; replay; push; Prometheus."""

from __future__ import annotations

import json
import random
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.sampler import __main__ as command
from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.prometheus import EXPORTED, PrometheusSink, parse_address
from sawtooth.ingest.sampler.push import Push, available_on_disk
from sawtooth.ingest.telemetry.session import SessionClock, SessionReader, SessionTable
from tests.support.fake_nvml import FakeClock, FakeNvml
from tests.support.push_receiver import PushReceiver
from tests.support.sampler_bench import Bench, Direct, recorded
from tests.support.sessions import read_session


def test_a_session_becomes_samples(tmp_path: Path) -> None:
    table = read_session(recorded(tmp_path))
    columns = table.columns()
    assert table.driver_version == "580.159.04" and table.devices[1]["uuid"] == "GPU-b"
    assert (columns["device"] == 0).sum() == 50
    assert set(np.diff(columns["time_ns"][columns["device"] == 0])) == {100_000_000}
    assert np.nanmax(columns["tensor_active_pct"]) == 5.0 and np.isnan(columns["tensor_active_pct"][0])
    assert columns["mem_total_bytes"][0] == 150_754_820_096
    assert not table.diagnostics.get("lost_records")


def test_processes_are_kept_by_device(tmp_path: Path) -> None:
    table = read_session(recorded(tmp_path))
    assert table.metadata["processes"] == {"0": [4_000_000_000], "1": [4_000_000_000]}


def test_driver_buffers_replace_polled_values_where_they_have_them(tmp_path: Path) -> None:
    bench = Bench(("GPU-a",))
    start_us = (bench.time.m + bench.time.offset) // 1000
    rows = [(start_us + i * 20_000, 300_000) for i in range(-50, 1000)]

    def fill() -> None:
        now = (bench.time.m + bench.time.offset) // 1000
        bench.nvml.buffer[("GPU-a", 0)] = [r for r in rows if r[0] <= now]

    fill()
    columns = read_session(recorded(tmp_path, 6, *((k * 0.1, fill) for k in range(60)), bench=bench)).columns()
    power = columns["power_w"][~np.isnan(columns["power_w"])]
    # 506.727 W is polled (before the first and after the last buffer sample), 300 W is the buffer's.
    assert (power == 300.0).sum() >= 200 and (power == 506.727).sum() < 25
    assert (columns["util_pct"] == 71).sum() == 30  # read every 200 ms, which is how often the driver renews it


def test_a_growing_session_is_tailed_line_by_line(tmp_path: Path) -> None:
    whole = recorded(tmp_path / "whole")
    content = (whole / "samples-0001.jsonl").read_bytes()
    grown = tmp_path / "grown"
    grown.mkdir()
    (grown / "meta.json").write_bytes((whole / "meta.json").read_bytes())
    reader, got = SessionReader(grown), []
    cuts = [*sorted(random.Random(3).sample(range(len(content)), 40)), len(content)]
    for cut in cuts:
        (grown / "samples-0001.jsonl").write_bytes(content[:cut])
        got += reader.poll()
    assert reader.damaged == 0 and reader.ended == "time"
    assert [r["q"] for r in got] == list(range(len(got)))
    assert got == SessionReader(whole).poll()


def test_a_torn_tail_is_skipped_for_ever_even_when_a_later_segment_follows(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    path = folder / "samples-0001.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    (folder / "samples-0002.jsonl").write_bytes(content.splitlines(keepends=True)[3])
    reader = SessionReader(folder)
    records = reader.poll()
    assert reader.damaged == 1 and reader.ended is None
    assert records[-1]["q"] == 3
    assert reader.poll() == []


@pytest.mark.parametrize("device", [10**12, -1, "x", 0.5, None])
def test_a_buffer_of_a_device_that_cannot_be_costs_itself(device: Any) -> None:
    table = SessionTable(columns=["util_pct"])
    ticks = [{"k": "tick", "m": m, "w": m, "q": m, "g": [[50.0]], "s": [[device, "power_w", [m], [300.0]]]} for m in range(5)]
    table.add([*ticks, {"k": "tick", "m": 9, "w": 9, "q": 9, "g": [], "s": [[0, "power_w", [10**30, -1], [1.0, 2.0]]]}])
    columns = table.table().columns()
    assert set(columns["device"]) == {0} and np.isnan(columns["power_w"]).sum() == len(columns["power_w"]) == 5
    assert table.table().diagnostics["line_unreadable"].count == 7


@pytest.mark.parametrize("seed", range(20))
def test_damaged_bytes_cost_their_lines_only(tmp_path: Path, seed: int) -> None:
    folder = recorded(tmp_path)
    path = folder / "samples-0001.jsonl"
    content = bytearray(path.read_bytes())
    good = len(bytes(content).splitlines())
    at = random.Random(seed).randrange(len(content) - 40)
    for i in range(at, at + 32):
        content[i] ^= 0x55
    path.write_bytes(bytes(content))
    reader = SessionReader(folder)
    assert good - 3 <= len(reader.poll()) < good
    table = read_session(folder)
    assert table.diagnostics["damaged_lines"].severity == "data_loss"


def test_gaps_are_kept_with_their_reason(tmp_path: Path) -> None:
    bench = Bench(("GPU-a",))
    table = read_session(recorded(tmp_path, 5, (2, lambda: bench.time.advance(1.0)), bench=bench))
    ((device, start, end, reason),) = table.gaps
    assert device == 0 and 1.0e9 <= end - start <= 1.2e9 and reason == "the sampler was not scheduled"


def test_a_step_of_the_wall_clock_moves_no_sample(tmp_path: Path) -> None:
    bench = Bench(("GPU-a",))

    def step() -> None:
        bench.time.offset -= 3600 * 10**9

    table = read_session(recorded(tmp_path, 5, (2, step), bench=bench))
    assert set(np.diff(table.columns()["time_ns"])) == {100_000_000}
    assert "clock_step" in table.diagnostics


def test_the_session_clock_follows_slews() -> None:
    clock = SessionClock()
    for i in range(10_000):  # 500 ppm over 1000 s: half a second in the end
        m = i * 100_000_000
        assert clock.time_ns(m, 10**18 + m + m // 2000) == 10**18 + m + m // 2000
    assert clock.steps == 0


def test_an_empty_folder_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"meta\.json"):
        read_session(tmp_path)


# Replay


def plain_recording(path: Path) -> Path:
    time = FakeClock()
    arguments = ["--format", "jsonl", "--out", str(path), "--seconds", "3", "--gpus", "0"]
    assert command.main(arguments, nvml=FakeNvml(time), clock=time.clock(), caller=Direct()) == 0
    return path


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_a_recording_plays_back_as_a_session(tmp_path: Path, speed: float) -> None:
    source = plain_recording(tmp_path / "nvml.jsonl")
    time = FakeClock()
    before = time.m
    out = tmp_path / "live"
    assert command.main(["--replay", str(source), "--out", str(out), "--speed", str(speed)], clock=time.clock()) == 0
    assert (time.m - before) / 1e9 == pytest.approx(2.9 / speed, abs=0.02)
    (folder,) = out.iterdir()
    columns = read_session(folder).columns()
    assert len(columns["time_ns"]) == 30
    assert set(np.diff(columns["time_ns"])) == {100_000_000}  # the spacing is the recorded one at any speed
    assert columns["time_ns"][-1] <= time.m + time.offset
    assert columns["util_pct"][5] == 71 and columns["pcie_rx_bps"][5] == 21 * 1048576


def test_a_session_plays_back_with_copies_and_loops(tmp_path: Path) -> None:
    source = recorded(tmp_path / "a", 2)
    time = FakeClock()
    out = tmp_path / "live"
    arguments = ["--replay", str(source), "--out", str(out), "--copies", "4", "--loop", "--seconds", "10"]
    assert command.main(arguments, clock=time.clock()) == 0
    (folder,) = out.iterdir()
    table = read_session(folder)
    assert len(table.devices) == 8 and len({d["uuid"] for d in table.devices.values()}) == 8
    columns = table.columns()
    assert (columns["device"] == 7).sum() == 100
    assert set(np.diff(columns["time_ns"][columns["device"] == 7])) == {100_000_000}


def test_what_is_no_recording_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert command.main(["--replay", str(tmp_path / "x.csv"), "--out", str(tmp_path)]) == 2
    assert "has no samples" in capsys.readouterr().err


# Push: a server made from the protocol's docstring, and a network that loses and repeats


def files_of(folder: Path) -> dict[int, bytes]:
    numbered = {int(p.stem.split("-")[1]): p.read_bytes() for p in folder.glob("samples-*")}
    return {0: (folder / "meta.json").read_bytes(), **numbered}


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_or_doubled_over_a_bad_network(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawtooth.ingest.sampler.segments.SEGMENT_BYTES", 5000)
    monkeypatch.setattr("sawtooth.ingest.sampler.push.BATCH_BYTES", 1500)
    folder = recorded(tmp_path, 3)
    server, dice, time = PushReceiver(), random.Random(seed), FakeClock()
    acknowledged = 0

    def send(method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        luck = dice.random()
        if luck < 0.2:
            return 0, {}  # the request is lost
        answer = server.send(method, url, body, headers)
        if luck < 0.4:
            return 0, {}  # the reply is lost: the client will deliver again
        if luck < 0.5:
            server.send(method, url, body, headers)  # the network delivers twice
        return answer

    push = Push(folder, "http://dash:1", "T", available=lambda: available_on_disk(folder), clock=time.clock(), send=send)
    for _ in range(3000):
        if push.drained():
            break
        if dice.random() < 0.02:  # the sampler's side is killed and starts anew with --resume-push
            acknowledged += push.state.acknowledged
            push = Push(
                folder, "http://dash:1", "T", available=lambda: available_on_disk(folder), clock=time.clock(), send=send
            )
        push.step()
    assert {n: bytes(b) for n, b in server.held[folder.name].items()} == files_of(folder)


def test_only_synced_whole_lines_are_shipped(tmp_path: Path) -> None:
    folder = recorded(tmp_path, 2)
    server = PushReceiver()
    content = (folder / "samples-0001.jsonl").read_bytes()
    lines = content.splitlines(keepends=True)
    synced = len(lines[0] + lines[1]) + 50  # the third line is not on disk as a whole
    sizes = {0: (folder / "meta.json").stat().st_size, 1: synced}
    push = Push(folder, "http://dash:1", "T", available=lambda: sizes, clock=FakeClock().clock(), send=server.send)
    for _ in range(5):
        push.step()
    assert bytes(server.held[folder.name][1]) == lines[0] + lines[1]


def test_trouble_is_said_and_retried_more_and_more_slowly(tmp_path: Path) -> None:
    folder = recorded(tmp_path, 1)
    clock = FakeClock().clock()
    push = Push(folder, "http://d", "wrong", available=lambda: available_on_disk(folder), clock=clock, send=PushReceiver().send)
    assert push.step() == 60.0 and push.state.trouble == "the dashboard does not accept the token"
    push = Push(folder, "http://d", "T", available=lambda: available_on_disk(folder), clock=clock, send=lambda *a: (0, {}))
    assert [push.step() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert push.state.trouble == "the dashboard cannot be reached"


def test_the_offset_of_the_clocks_is_measured(tmp_path: Path) -> None:
    folder = recorded(tmp_path, 1)
    push = Push(
        folder,
        "http://d",
        "T",
        available=lambda: available_on_disk(folder),
        clock=FakeClock(4_000_000_000).clock(),
        send=PushReceiver().send,
    )
    push.step()
    assert push.state.offset_ns == 1_000_000_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--push", "http://d"], "needs the push token"),
        (["--push", "dashboard:8501", "--token", "T"], "such as https://"),
        (["--resume-push", "x"], "needs --push"),
        (["--interval", "0.001"], "at least 0.02 s"),
        (["--prometheus", "here"], "needs a port"),
    ],
)
def test_wrong_usage_is_a_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SAWTOOTH_TOKEN", raising=False)
    monkeypatch.delenv("SAWTOOTH_PUSH_TOKEN", raising=False)
    assert command.main(arguments) == 2
    assert said in capsys.readouterr().err


# Prometheus


def test_metrics_have_base_units_and_only_fresh_values() -> None:
    bench = Bench(("GPU-a",))
    sink = PrometheusSink(bench.time.clock())
    bench.sampler.sinks = [sink]
    bench.sampler.run(2)
    text = sink.text()
    labels = '{gpu="0",uuid="GPU-a",name="NVIDIA H200"}'
    assert f"sawtooth_gpu_utilization_ratio{labels} 0.71\n" in text
    assert f"sawtooth_gpu_sm_clock_hertz{labels} 1980000000\n" in text
    assert "# TYPE sawtooth_gpu_energy_joules_total counter" in text
    assert "sawtooth_samples_total 20\n" in text
    bench.time.advance(60)
    assert "utilization" not in sink.text()


def test_every_column_is_exported() -> None:
    assert set(EXPORTED) == set(COLUMNS)


def test_metrics_are_served_on_loopback() -> None:
    assert parse_address(":9400") == ("127.0.0.1", 9400)
    assert parse_address("9400") == ("127.0.0.1", 9400)
    assert parse_address("0.0.0.0:9400") == ("0.0.0.0", 9400)
    assert parse_address("[::1]:9400") == ("::1", 9400)
    sink = PrometheusSink(FakeClock().clock())
    port = sink.serve(("127.0.0.1", 0))
    sink_devices = [{"device": 0, "uuid": 'a"b\\', "name": "x\ny"}]
    sink.devices(sink_devices, 0, 0)
    sink.write({"k": "tick", "m": 5_000_000_000, "g": [[50, *[None] * (len(COLUMNS) - 1)]]})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        text = reply.read().decode()
    assert 'sawtooth_gpu_utilization_ratio{gpu="0",uuid="a\\"b\\\\",name="x\\ny"} 0.5' in text
    sink.close()


def test_push_runs_beside_the_sampling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = PushReceiver()
    monkeypatch.setattr(Push.__init__, "__kwdefaults__", {**(Push.__init__.__kwdefaults__ or {}), "send": server.send})
    arguments = ["--out", str(tmp_path), "--seconds", "0.3", "--interval", "0.05", "--push", "http://dash:1", "--token", "T"]
    nvml = FakeNvml(FakeClock())
    nvml.cost_s["nvmlGpmSampleGet"] = 0.1
    assert command.main(arguments, nvml=nvml) == 0
    (folder,) = tmp_path.iterdir()
    assert {n: bytes(b) for n, b in server.held[folder.name].items()} == files_of(folder)
    assert json.loads(bytes(server.held[folder.name][0]))["session"] == folder.name
    assert threading.active_count() < 50
