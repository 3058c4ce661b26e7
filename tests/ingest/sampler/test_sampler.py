"""Tests of the sampler with a scripted NVML and a clock that advances on waits only."""

from __future__ import annotations

import ast
import json
import os
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sawtooth.app.live.folders import newest_segment
from sawtooth.ingest import sampler
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.sampler import __main__ as command
from sawtooth.ingest.sampler.calls import CallThread, HungError
from sawtooth.ingest.sampler.nvml.driver import DriverLostError, NvmlDriver
from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.segments import decode_line, encode_line, join_segments, segment_name, segments_of
from sawtooth.ingest.sampler.sinks import SessionSink, new_session_id
from sawtooth.ingest.sampler.step_rate import StepRateReader
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.telemetry.session import write_session_file
from tests.support.fake_nvml import FakeClock, FakeNvml, NVMLError
from tests.support.sampler_bench import Bench, Direct
from tests.support.threads import wait_for_end


def test_a_tick_has_every_gpu_and_only_finite_numbers() -> None:
    bench = Bench()
    memory = bench.run(1.05)
    ticks = memory.ticks()
    assert len(ticks) == 11
    assert [round((t["m"] - bench.start_m) / 1e8) for t in ticks] == list(range(11))
    assert bench.value(ticks[0], "util_pct") == 71
    assert bench.value(ticks[0], "power_w", 1) == 506.727
    assert bench.value(ticks[0], "tensor_active_pct") is None  # GPM needs a window first
    assert bench.value(ticks[1], "dram_active_pct") is None  # NaN in the first window
    assert bench.value(ticks[2], "dram_active_pct") == 10.0
    assert bench.value(ticks[1], "tensor_active_pct") == 5.0
    assert bench.value(ticks[1], "pcie_rx_bps") is None  # of the slower group: over the first second
    assert bench.value(ticks[10], "pcie_rx_bps") == 21 * 1048576
    json.dumps(ticks, allow_nan=False)
    assert memory.records[-1]["k"] == "end"


def test_capabilities_name_the_source_of_a_value_or_the_reason_against_it() -> None:
    bench = Bench(gpm=False)
    bench.nvml.fail[("field 186", "GPU-a")] = 3
    bench.nvml.fail[("field 186", "GPU-b")] = 3
    bench.nvml.fail[("nvmlDeviceGetTotalEnergyConsumption", "GPU-b")] = 3
    bench.nvml.fail[("nvmlDeviceGetTotalEccErrors", "GPU-b")] = 3  # a card without ECC
    memory = bench.run(0.5)
    first, second = memory.heads[0]
    assert first["capabilities"]["power_w"]["source"].startswith("nvmlDeviceGetPowerUsage")
    assert "Hopper" in first["capabilities"]["tensor_active_pct"]["reason"]
    assert "code 3" in second["capabilities"]["energy_j"]["reason"]
    assert bench.value(memory.ticks()[0], "energy_j", 1) is None
    state = ("ecc_corrected_count", "ecc_uncorrected_count", "pcie_gen", "pcie_width", "pcie_max_width", "power_limit_w")
    assert [bench.value(memory.ticks()[0], column) for column in state] == [7, 0, 5, 8, 16, 650]
    assert [bench.value(memory.ticks()[0], column, 1) for column in state[:3]] == [None, None, 5]
    assert bench.value(memory.ticks()[0], "power_w", 1) == 480.0
    for gpu in (first, second):
        for column, capability in gpu["capabilities"].items():
            assert column in COLUMNS
            assert (capability["source"] is None) == (capability["reason"] is not None), column


def test_an_unsupported_gpm_metric_is_tried_once_and_reported() -> None:
    memory = Bench(("GPU-a",)).run(3.0)
    assert {e["column"] for e in memory.events("capability")} == {"nvlink_rx_bps", "nvlink_tx_bps"}


def test_slow_calls_are_spread_out_and_processes_are_rare() -> None:
    bench = Bench(("GPU-a",))
    bench.nvml.cost_s["nvmlDeviceGetTotalEnergyConsumption"] = 0.004  # 4 ms: 0.04 % of wall time allows one in 10 s
    memory = bench.run(30)
    energies = [bench.value(t, "energy_j") for t in memory.ticks()]
    assert 3 <= sum(e is not None for e in energies) <= 4
    assert sum("p" in t for t in memory.ticks()) == 3
    assert memory.ticks()[0]["p"] == [[0, 4_000_000_000, None, None]]


def test_values_of_driver_buffers_keep_their_times() -> None:
    bench = Bench(("GPU-a",))
    wall_us = (bench.time.m + bench.time.offset) // 1000
    rows = [(wall_us + i * 20_000, 500_000 + i) for i in range(-50, 200)]

    def fill() -> None:
        now = (bench.time.m + bench.time.offset) // 1000
        bench.nvml.buffer[("GPU-a", 0)] = [r for r in rows if r[0] <= now]

    fill()
    memory = bench.run(4.05, *((k * 0.1, fill) for k in range(41)))
    times = [t for tick in memory.ticks() for s in tick.get("s", []) if s[1] == "power_w" for t in s[2]]
    assert times == sorted(set(times))
    assert all(t > wall_us for t in times)  # what the ring held before the session is not the session's
    assert len(times) >= 100
    values = [v for tick in memory.ticks() for s in tick.get("s", []) for v in s[3]]
    assert 500.0 < values[0] < 500.3


def test_each_change_of_the_step_rate_is_recorded(tmp_path: Path) -> None:
    bench, file = Bench(("GPU-a",)), tmp_path / "pace.json"
    bench.sampler.step_rate = StepRateReader(file)
    known = {"step": 10, "p50_ms": 9.0, "p95_ms": 9.5, "per_s": 110.0}

    def write(step: int) -> None:
        file.write_text(json.dumps({**known, "step": step, "samples": None}))
        os.utime(file, ns=(step, step))

    memory = bench.run(6, (1.5, lambda: write(10)), (3.5, lambda: write(20)))
    records = [record for record in memory.records if record["k"] == "pace"]
    assert [{key: record[key] for key in known} for record in records] == [known, {**known, "step": 20}]
    assert len(memory.ticks()) == len(Bench(("GPU-a",)).run(6).ticks())


def test_a_lost_gpu_is_an_event_and_returns_by_uuid() -> None:
    bench = Bench()

    def lose() -> None:
        bench.nvml.fail[("*", "GPU-a")] = 15

    def heal() -> None:
        del bench.nvml.fail[("*", "GPU-a")]
        bench.nvml.uuids.reverse()  # renumbered by the reset

    memory = bench.run(8, (1, lose), (3, heal))
    assert [e["code"] for e in memory.events("gpu_lost")] == [15]
    assert [e["uuid"] for e in memory.events("gpu_back")] == ["GPU-a"]
    ticks = memory.ticks()
    assert all(t["g"][1] is not None for t in ticks)
    lost = [t for t in ticks if t["g"][0] is None]
    assert lost and ticks[-1]["g"][0] is not None
    assert [g["uuid"] for g in memory.heads[-1]] == ["GPU-a", "GPU-b"]  # devices keep their place


def test_the_sampler_survives_a_driver_reload_with_back_off() -> None:
    bench = Bench()

    def unload() -> None:
        bench.nvml.fail[("*", None)] = 1

    def load() -> None:
        del bench.nvml.fail[("*", None)]

    memory = bench.run(20, (1, unload), (6, load))
    assert memory.events("driver_lost")[0]["code"] == 1
    assert len(memory.events("driver_back")) == 1
    assert memory.events("heartbeat")
    assert bench.value(memory.ticks()[-1], "tensor_active_pct") == 5.0  # GPM was primed anew


def test_a_hung_call_causes_a_gap_without_invented_samples() -> None:
    bench = Bench()
    memory = bench.run(10, (2, lambda: setattr(bench.caller, "hung", True)), (6, lambda: setattr(bench.caller, "hung", False)))
    assert memory.events("hung")
    (gap,) = memory.events("gap")
    assert gap["reason"] == "NVML hung"
    assert 3.5e9 <= gap["to_m"] - gap["from_m"] <= 4.5e9
    assert not [t for t in memory.ticks() if gap["from_m"] < t["m"] < gap["to_m"]]
    assert memory.events("heartbeat")
    assert memory.ticks()[-1]["m"] > gap["to_m"]


def test_the_watchdog_stops_waiting() -> None:
    release = threading.Event()
    caller = CallThread(FakeClock().clock(), limit_s=0.01)
    with pytest.raises(HungError):
        caller.call(lambda: release.wait(5))
    assert caller.busy
    caller.close()  # does not wait for the call
    release.set()
    done = threading.Event()
    real = CallThread(sampler_clock(), limit_s=5)
    assert real.call(lambda: done.set() or 7) == 7
    with pytest.raises(DriverLostError):
        real.call(lambda: (_ for _ in ()).throw(DriverLostError(9, "gone")))
    real.close()
    assert wait_for_end({thread for thread in threading.enumerate() if thread.name == "nvml"}) == []


@pytest.mark.parametrize("hangs_in", ["read", "close"])
def test_a_hung_driver_does_not_prevent_the_end_of_the_sampler(hangs_in: str) -> None:
    """NVML's calls share a lock: while one hangs, so does the shutdown."""
    bench, release, lock = Bench(), threading.Event(), threading.Lock()
    read, close = bench.driver.read, bench.driver.close

    def locked(call: Any, hangs: bool) -> Any:
        def waits() -> Any:
            with lock:
                if hangs:
                    release.wait(60)
                return call()

        return waits

    bench.driver.read = locked(read, hangs_in == "read")  # type: ignore[method-assign]
    bench.driver.close = locked(close, hangs_in == "close")  # type: ignore[method-assign]
    bench.sampler.caller = CallThread(sampler_clock(), limit_s=0.05)
    ended: list[str] = []
    thread = threading.Thread(target=lambda: ended.append(bench.sampler.run(1)), daemon=True)
    thread.start()
    thread.join(20)
    assert ended == ["time"] and bench.memory.records[-1]["k"] == "end"
    assert bool(bench.memory.events("hung")) == (hangs_in == "read")
    release.set()


def sampler_clock() -> Any:
    from sawtooth.ingest.sampler.clock import SamplerClock

    return SamplerClock()


def test_missed_ticks_are_a_gap() -> None:
    bench = Bench(("GPU-a",))
    memory = bench.run(5, (2, lambda: bench.time.advance(1.0)))
    (gap,) = memory.events("gap")
    assert 1.0e9 <= gap["to_m"] - gap["from_m"] <= 1.2e9
    assert len({t["m"] for t in memory.ticks()}) == len(memory.ticks())


def test_expensive_sampling_becomes_rarer_and_is_reported() -> None:
    bench = Bench(("GPU-a",))

    def burn() -> None:
        bench.time.cpu = int((bench.time.m - bench.start_m) * 0.06)

    memory = bench.run(65, *((k * 0.5, burn) for k in range(130)))
    overhead = memory.events("overhead")
    assert overhead[0]["cpu_share"] == pytest.approx(0.06, rel=0.1)
    slowed = memory.events("slowed")
    # First everything but GPM becomes rarer, three times; only then the ticks themselves.
    assert [e.get("stretch") for e in slowed[:3]] == [2, 4, 8]
    assert [e.get("interval_ns") for e in slowed[3:5]] == [200_000_000, 400_000_000]


def test_costs_of_an_h200_stay_within_the_budget() -> None:
    bench = Bench(("GPU-a",))
    bench.nvml.cost_s |= {"nvmlGpmSampleGet": 0.00012, "nvmlGpmMetricsGet": 0.000006, "nvmlDeviceGetUtilizationRates": 0.00004}
    bench.nvml.cost_s |= {
        "nvmlDeviceGetFieldValues": 0.00003,
        "nvmlDeviceGetMemoryInfo": 0.00007,
        "nvmlDeviceGetTotalEnergyConsumption": 0.0045,
        "nvmlDeviceGetSamples": 0.0015,
    }
    memory = bench.run(60)
    assert memory.events("overhead")[-1]["nvml_ms_per_gpu_tick"] <= 0.5
    assert all(bench.value(t, "sm_active_pct") is not None for t in memory.ticks()[1:])  # the teeth are never given up
    assert all(1 not in asked for asked in bench.nvml.gpm_requests)  # graphics utilization: 1.5 ms
    assert "1.5 ms" in memory.heads[0][0]["capabilities"]["gr_active_pct"]["reason"]
    rest = [t for t in memory.ticks() if bench.value(t, "fp32_pct") is not None]
    assert 58 <= len(rest) <= 60


def test_expensive_metrics_of_the_slow_group_become_rarer() -> None:
    bench = Bench(("GPU-a",))
    bench.nvml.cost_s |= {"nvmlGpmSampleGet": 0.0001, "a GPM metric": 0.0001}  # 12 of them: 1.3 ms, allowed every 2.6 s
    memory = bench.run(60)
    rest = [t for t in memory.ticks() if bench.value(t, "fp32_pct") is not None]
    assert 20 <= len(rest) <= 26


def test_a_transient_failure_is_null_with_its_code() -> None:
    bench = Bench(("GPU-a",))
    memory = bench.run(
        2,
        (0.5, lambda: bench.nvml.fail.update({("nvmlDeviceGetClockInfo", "GPU-a"): 999})),
        (1.0, lambda: bench.nvml.fail.clear()),
    )
    failed = [t for t in memory.ticks() if "n" in t]
    assert failed and failed[0]["n"][0] == [0, "clock_sm_mhz", 999]
    assert bench.value(failed[0], "clock_sm_mhz") is None and bench.value(failed[0], "mem_used_bytes") is not None
    assert "n" not in memory.ticks()[-1]


def test_mig_instances_are_separate_devices() -> None:
    bench = Bench(("GPU-a",))
    bench.nvml.mig = [("MIG-1", 3), ("MIG-2", 5)]
    memory = bench.run(0.5)
    assert [g["uuid"] for g in memory.heads[0]] == ["GPU-a", "MIG-1", "MIG-2"]
    assert "MIG" in memory.heads[0][1]["capabilities"]["util_pct"]["reason"]
    tick = memory.ticks()[2]
    assert bench.value(tick, "util_pct", 1) is None
    assert bench.value(tick, "tensor_active_pct", 1) == 5.0
    assert bench.value(memory.ticks()[0], "mem_used_bytes", 2) == 5_146_279_936


def test_gpus_are_chosen_by_index_or_uuid() -> None:
    time = FakeClock()
    driver = NvmlDriver(FakeNvml(time), time.clock(), ["GPU-b"])
    assert [(g.device, g.uuid) for g in driver.open()] == [(0, "GPU-b")]
    with pytest.raises(DriverLostError, match="It has: 0 "):
        NvmlDriver(FakeNvml(time), time.clock(), ["7"]).open()


@pytest.mark.parametrize("code", [9, 12])
def test_a_host_without_gpus_is_sampled_alone(code: int, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    time = FakeClock()
    nvml = FakeNvml(time)
    nvml.fail[("nvmlInit", None)] = code
    assert (
        command.main(["--out", str(tmp_path / "live"), "--seconds", "9"], nvml=nvml, clock=time.clock(), caller=Direct()) == 0
    )
    assert "Only its cores, memory, disks and network are sampled" in capsys.readouterr().err
    (session,) = (tmp_path / "live").iterdir()
    write_session_file(session, tmp_path / "host.jsonl")
    data = DataFolder(tmp_path / "data").create()
    ingested = ingest_file(tmp_path / "host.jsonl", data)
    with duckdb.connect(str(data.recording_file(ingested.id)), read_only=True) as recording:
        count, cores, of_gpus = recording.execute(
            "SELECT count(*), max(cores), (SELECT count(*) FROM samples) FROM host_samples"
        ).fetchall()[0]
    assert (count, of_gpus) == (8, 0)
    assert cores >= 1


@pytest.mark.parametrize("code", [9, 12, 18, 4, 999])
def test_a_missing_driver_is_reported_with_a_sentence(code: int, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    time = FakeClock()
    nvml = FakeNvml(time)
    nvml.fail[("nvmlInit", None)] = code
    assert command.main(["--out", str(tmp_path), "--no-host"], nvml=nvml, clock=time.clock()) == 2
    said = capsys.readouterr().err
    assert said.startswith("sawtooth sample: ") and said.count("\n") == 1
    assert ("NVML refuses access to the GPUs" in said, "no working NVIDIA driver" in said) == (code == 4, code in (9, 12))
    assert list(tmp_path.iterdir()) == []


def test_a_session_folder_has_the_documented_files(tmp_path: Path) -> None:
    bench = Bench()
    sink = SessionSink(tmp_path, 0.1)
    bench.sampler.sinks = [sink]
    bench.sampler.run(3)
    assert sink.folder is not None
    meta = json.loads((sink.folder / "meta.json").read_text())
    assert meta["columns"] == list(COLUMNS) and meta["devices"][0]["uuid"] == "GPU-a" and meta["v"] == sampler.FORMAT_VERSION
    lines = (sink.folder / "samples-0001.jsonl").read_bytes().splitlines()
    records = [decode_line(line) for line in lines]
    assert all(records)
    found = [r for r in records if r]
    assert [r["q"] for r in found] == list(range(len(found)))
    assert found[0]["k"] == "head" and found[-1]["k"] == "end"
    assert sum(r["k"] == "tick" for r in found) == 30


def test_every_damage_to_a_line_is_noticed() -> None:
    line = encode_line({"k": "tick", "m": 1, "g": [[1.5, None]]}).rstrip(b"\n")
    assert decode_line(line) == {"k": "tick", "m": 1, "g": [[1.5, None]]}
    for i in range(len(line)):
        assert decode_line(line[:i]) is None
        assert decode_line(line[:i] + bytes([line[i] ^ 1]) + line[i + 1 :]) is None
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_line({"k": "tick", "m": float("nan")})


def test_segments_rotate_by_size_and_time_and_are_never_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawtooth.ingest.sampler.segments.SEGMENT_BYTES", 3000)
    bench = Bench()
    sink = SessionSink(tmp_path, 0.1)
    bench.sampler.sinks = [sink]
    bench.sampler.run(5)
    assert sink.folder is not None
    names = sorted(p.name for p in sink.folder.glob("samples-*"))
    assert len(names) > 2 and names[0] == "samples-0001.jsonl"
    for name in names:
        lines = (sink.folder / name).read_bytes().splitlines()
        head = decode_line(lines[0])
        assert head and head["k"] == "head" and head["devices"][1]["uuid"] == "GPU-b"


def test_the_ten_thousandth_segment_follows_those_before_it(tmp_path: Path) -> None:
    """The ten-thousandth segment follows those before it.

    It comes after ten weeks, at ten minutes each.
    """
    for number in (10000, 9999, 2):
        (tmp_path / segment_name(number)).write_bytes(encode_line({"k": "tick", "m": number}))
    (tmp_path / "samples-1x.jsonl").write_bytes(b"")
    assert list(segments_of(tmp_path)) == [2, 9999, 10000]
    assert segments_of(tmp_path / "none") == {}
    assert join_segments(tmp_path, tmp_path / "joined.jsonl") == 3
    records = [decode_line(line) for line in (tmp_path / "joined.jsonl").read_bytes().splitlines()]
    assert [record and record["m"] for record in records] == [2, 9999, 10000]
    assert newest_segment(tmp_path) == tmp_path / "samples-10000.jsonl"


def test_a_full_disk_causes_a_telemetry_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(("GPU-a",))
    sink = SessionSink(tmp_path, 0.1)
    bench.sampler.sinks = [sink]
    import os as real_os

    full = {"yes": False}
    write = real_os.write

    def refusing(descriptor: int, data: bytes) -> int:
        if full["yes"]:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr("sawtooth.ingest.sampler.segments.os.write", refusing)
    bench.at = [(1, lambda: full.update(yes=True)), (5, lambda: full.update(yes=False))]
    bench.sampler.run(20)
    assert sink.folder is not None
    records = [decode_line(x) for p in sorted(sink.folder.glob("samples-*")) for x in p.read_bytes().splitlines()]
    assert all(records)
    gaps = [r for r in records if r and r.get("e") == "gap"]
    assert [g["reason"] for g in gaps] == ["the disk was full"]


def test_a_gpu_that_returns_on_a_full_disk_is_in_the_next_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    sink = SessionSink(tmp_path, 0.1)
    bench.sampler.sinks = [sink]
    bench.sampler.run(1)
    assert sink.writer is not None
    devices = sink.writer.meta["devices"]
    with monkeypatch.context() as full:
        full.setattr("sawtooth.ingest.sampler.segments.os.open", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        sink.devices(devices[:1], 10**12, 10**12)
        sink.write({"k": "tick", "m": 10**12, "w": 10**12, "g": []})
    sink.write({"k": "tick", "m": 2 * 10**12, "w": 2 * 10**12, "g": []})
    sink.close()
    head, gap, tick = (decode_line(x) for x in newest_segment(sink.writer.folder).read_bytes().splitlines())
    assert head and gap and tick
    assert head["devices"] == devices[:1]
    assert (gap["e"], gap["from_m"], gap["to_m"], tick["k"]) == ("gap", 10**12, 2 * 10**12, "tick")


def test_plain_lines_match_the_recordings(tmp_path: Path) -> None:
    time = FakeClock()
    out = tmp_path / "nvml.jsonl"
    arguments = ["--format", "jsonl", "--out", str(out), "--seconds", "1", "--gpus", "0"]
    assert command.main(arguments, nvml=FakeNvml(time), clock=time.clock(), caller=Direct()) == 0
    meta, *rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert meta["meta"] is True and meta["name"] == "NVIDIA H200" and meta["gpm"] is True and meta["hz"] == 10
    assert rows[5]["gpu_util"] == 71 and rows[5]["throttle"] == 4 and rows[5]["mem_total"] == 150_754_820_096
    assert rows[5]["gpm_tensor_any"] == 5.0 and rows[5]["gpm_pcie_rx"] == 21.0
    assert "gpm_tensor_any" not in rows[0]
    assert abs(rows[3]["t_ns"] - rows[2]["t_ns"] - 100_000_000) < 1_000_000


def test_a_wrapped_command_gives_its_exit_code(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--interval", "0.02", "--", "sh", "-c", "exit 7"]
    assert command.main(arguments, nvml=FakeNvml(FakeClock())) == 7
    (session,) = tmp_path.iterdir()
    assert (session / "meta.json").exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("odd")])
def test_a_command_is_waited_for_when_sampling_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(SessionSink, "devices", fails)
    done = tmp_path / "done"
    arguments = ["--out", str(tmp_path / "out"), "--", "sh", "-c", f"sleep 0.5; touch {done}; exit 7"]
    assert command.main(arguments, nvml=FakeNvml(FakeClock())) == 7
    assert done.exists()
    assert "The command continues without sampling." in capsys.readouterr().err


def test_a_failed_command_and_a_missing_folder_are_distinguished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, ran = tmp_path / "train.sh", tmp_path / "ran"
    script.write_text("#!/bin/sh")
    for out, words, sentence in (
        (tmp_path, ["no-such-command"], "There is no command 'no-such-command'."),
        (tmp_path, [str(script)], f"{str(script)!r} cannot be run (Permission denied)."),
        (tmp_path / "none" / "nvml.jsonl", ["touch", str(ran)], f"There is no folder {str(tmp_path / 'none')!r}"),
    ):
        assert command.main(["--out", str(out), "--", *words], nvml=FakeNvml(FakeClock())) == 2
        assert sentence in capsys.readouterr().err
    assert not ran.exists()


def test_session_ids_are_safe_names() -> None:
    assert new_session_id(1_795_228_797_900_155_181, "no de/..\\é").startswith("20261121T023957Z-no-de")
    assert len({new_session_id(0) for _ in range(50)}) == 50


def test_the_sampler_imports_only_the_standard_library_and_nvml() -> None:
    import sys

    for path in Path(sampler.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = (
                    [f"{node.module}.{a.name}" for a in node.names] if node.module == "sawtooth.ingest" else [node.module or ""]
                )
            for name in names:
                top = name.split(".")[0]
                ours = name.startswith(
                    (
                        "sawtooth.ingest.sampler",
                        "sawtooth.ingest.quantities",
                        "sawtooth.ingest.children",
                        "sawtooth.ingest.loop.cores",  # standard library only, as it says itself
                        "sawtooth.ingest.json_checksum",
                        "sawtooth.installation",
                    )
                )
                assert ours or top in sys.stdlib_module_names or top == "pynvml", (path.name, name)


def test_the_fake_raises_what_the_bindings_raise() -> None:
    import pynvml

    assert pynvml.NVMLError(15).value == NVMLError(15).value == 15
