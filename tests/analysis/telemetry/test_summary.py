"""Tests of telemetry from ingest to summary and to the metrics of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sawtooth.analysis.metrics.registry import METRICS, readings_without_trace
from sawtooth.analysis.metrics.telemetry_metrics import sentence
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.signal.means import counter_rate
from sawtooth.analysis.telemetry.signal.steady import SteadyPart
from sawtooth.analysis.telemetry.summary import DeviceTelemetry, summarize
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.manifest import UserFacts, new_manifest
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.findings_of import result_of
from tests.support.paths import SAMPLES
from tests.support.pulses import START_NS, pulse_train


def write_plain(path: Path, times: np.ndarray, rows: list[dict[str, float]], **meta: object) -> Path:
    lines = [
        {"meta": True, "name": "NVIDIA H200", **meta},
        *({"t_ns": int(t), **row} for t, row in zip(times, rows, strict=True)),
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def summary(path: Path, tmp_path: Path, profiles: tuple[tuple[int, int], ...] = ()) -> list[DeviceTelemetry]:
    folder = DataFolder(tmp_path / "data")
    ref = ingest_file(path, folder)
    with Library(folder).open(ref.id, derived=False) as recording:
        return summarize(recording, profiles)


def run_of(tmp_path: Path, *files: Path, facts: UserFacts | None = None) -> RunResult:
    folder = DataFolder(tmp_path / "data")
    manifest = new_manifest([ingest_file(f, folder) for f in files], "run")
    if facts is not None:
        import msgspec

        manifest = msgspec.structs.replace(manifest, facts=facts)
    return analyse(manifest, Library(folder))


@pytest.fixture(scope="module")
def starved() -> RunResult:
    return result_of("resnet_starved")


def test_the_mean_power_is_that_of_the_energy_counter(starved: RunResult) -> None:
    """The Telemetry page and the audit show one mean power.

    The mean of the samples would be 227 W instead of 226 W.
    """
    sampled = starved.lead.telemetry if starved.lead is not None else None
    assert sampled is not None and sampled.counted_power_w is not None
    assert sampled.means["power_w"] == sampled.counted_power_w


def test_sawtooth_period_of_a_starved_run_is_its_step(starved: RunResult) -> None:
    truth = json.loads((SAMPLES / "resnet_starved/truth.json").read_text())
    period = starved.metrics["sawtooth_period_s"]
    assert period.value == pytest.approx(truth["step_s_pipelined"], rel=0.05)
    assert period.trust == "ok" and "waits for the rest" in period.notes[0]


def test_power_from_a_counter_that_is_reset() -> None:
    # The power is 400 W, and the driver is loaded again after 30 s. Samples of the power would miss the time between
    # them.
    times = START_NS + np.arange(0, 61, 5, dtype=np.int64) * 10**9
    counter = np.where(np.arange(13) < 6, 5e8, 0.0) + 400.0 * np.arange(0, 61, 5)
    part = SteadyPart(START_NS - 1, int(times[-1]))
    assert counter_rate(times, counter, part) == pytest.approx(400)
    assert counter_rate(times[:4], counter[:4], part) is None  # 15 s
    assert counter_rate(times, counter, part, [(START_NS + 10 * 10**9, START_NS + 50 * 10**9)]) == pytest.approx(400, rel=1e-6)


def test_measured_means_agree_with_the_independent_ones(starved: RunResult) -> None:
    truth = json.loads((SAMPLES / "resnet_starved/truth.json").read_text())["nvml_mean"]
    assert starved.metrics["nvml_gpu_util_mean"].value == pytest.approx(truth["gpu_util"] / 100, abs=0.01)
    assert starved.metrics["tensor_active_measured"].value == pytest.approx(truth["gpm_tensor_any"] / 100, abs=0.005)
    clock = starved.metrics["mfu_factor_clock"]
    assert clock.value == pytest.approx(truth["sm_mhz"] / 1830, abs=0.001)  # The peak of the H200 is quoted at 1830 MHz.
    assert clock.trust == "ok" and any("outside the profile" in note for note in clock.notes)


def test_steady_run_has_no_period_and_a_reason() -> None:
    period = result_of("gpt").metrics["sawtooth_period_s"]
    assert period.value is None and period.why_missing is not None
    assert period.why_missing.startswith("No sawtooth in GPU activity") and "are not visible" in period.why_missing


def test_metrics_without_telemetry_say_how_to_record_it(tmp_path: Path) -> None:
    result = run_of(tmp_path, SAMPLES / "gpt/trace.json.gz")
    for key in ("nvml_gpu_util_mean", "tensor_active_measured", "sawtooth_period_s"):
        assert "sawtooth sample" in (result.metrics[key].why_missing or "")
    assert result.metrics["mfu_factor_clock"].trust == "caution"


def test_run_with_only_telemetry(tmp_path: Path) -> None:
    result = run_of(tmp_path, SAMPLES / "resnet_starved/nvml.jsonl")
    assert result.lead is None and set(result.metrics) == set(METRICS)
    truth = json.loads((SAMPLES / "resnet_starved/truth.json").read_text())["nvml_mean"]
    assert result.metrics["nvml_gpu_util_mean"].value == pytest.approx(truth["gpu_util"] / 100, abs=0.01)
    assert result.metrics["mfu"].value is None


def test_an_offset_moves_the_profile_out_of_the_means(tmp_path: Path) -> None:
    times, util = pulse_train(np.random.default_rng(0), period_s=1.0, duty=0.5, samples=300)
    util[100:150] = 100.0  # Sampled under the profiler.
    path = write_plain(tmp_path / "n.jsonl", times, [{"gpm_graphics": u, "gpu_util": u} for u in util])
    (plain,) = summary(path, tmp_path)
    (outside,) = summary(path, tmp_path, ((int(times[100]) - 10**8, int(times[150])),))
    assert plain.means["util_pct"] == pytest.approx(58, abs=3)
    assert outside.means["util_pct"] == pytest.approx(50, abs=2)


def test_samples_before_the_first_marked_step_are_ignored(tmp_path: Path) -> None:
    times, marks = START_NS + np.arange(160) * 10**8, iter(range(START_NS + 10**10, START_NS + 15 * 10**9, 5 * 10**7))
    path = write_plain(tmp_path / "n.jsonl", times, [{"gpu_util": 33.0 if i < 100 else 98.0} for i in range(160)])
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: START_NS, monotonic_ns=lambda: START_NS)
    for step, ns in enumerate(marks):
        writer.mark(step, now_ns=ns)
    writer.close()
    result = run_of(tmp_path, path, tmp_path / "marks.jsonl")
    assert result.telemetry.devices[0].means["util_pct"] == pytest.approx(98, abs=1)
    alone = run_of(tmp_path / "alone", path)
    assert alone.telemetry.devices[0].means["util_pct"] < 90


def test_gaps_lower_coverage_and_trust(tmp_path: Path) -> None:
    times, util = pulse_train(np.random.default_rng(0), period_s=1.0, duty=0.3, samples=300)
    keep = np.ones(300, bool)
    keep[100:160] = False
    path = write_plain(tmp_path / "n.jsonl", times[keep], [{"gpu_util": u} for u in util[keep]])
    (found,) = summary(path, tmp_path)
    assert found.coverage == pytest.approx(0.8, abs=0.02)
    readings = readings_without_trace(found, "no trace")
    reading = readings["nvml_gpu_util_mean"]
    assert reading.trust == "caution" and any("not sampled" in note for note in reading.notes)
    assert reading.value == pytest.approx(0.3, abs=0.02)
    assert "Hopper" in (readings["tensor_active_measured"].why_missing or "")


def test_rare_samples_give_advice_on_sampling(tmp_path: Path) -> None:
    times = START_NS + np.arange(60) * 15 * 10**9
    path = write_plain(tmp_path / "n.jsonl", times, [{"gpu_util": 40.0 + (i * 7) % 13} for i in range(60)])
    (found,) = summary(path, tmp_path)
    assert "ten times per second" in (readings_without_trace(found, "no trace")["sawtooth_period_s"].why_missing or "")


def test_memory_energy_and_throttling(tmp_path: Path) -> None:
    times = START_NS + np.arange(300) * 10**8
    rows = [
        {
            "gpm_graphics": 90.0,
            "mem_used": 10.0**9 + i,
            "throttle": 4 if 100 <= i < 200 else 0,
            "sm_mhz": 1500 if 100 <= i < 200 else 1980,
        }
        for i in range(300)
    ]
    (found,) = summary(write_plain(tmp_path / "n.jsonl", times, rows), tmp_path)
    assert found.memory_peak_bytes == 10**9 + 299
    assert found.steady.start_ns is not None and found.steady.end_ns is not None
    (band,) = found.throttling
    assert band.reason == "power cap" and band.clock_sm_mhz == 1500


def test_sentence_states_work_and_wait(tmp_path: Path) -> None:
    times, util = pulse_train(np.random.default_rng(0), period_s=0.3, duty=0.2, samples=300)
    (found,) = summary(write_plain(tmp_path / "n.jsonl", times, [{"gpm_graphics": u} for u in util]), tmp_path)
    assert sentence(found.sawtooth, found.signal, found.works_pct).startswith("The GPU works 20 % of each 0.3 s (60 ms)")


def test_sm_activity_gives_the_period_and_utilization_the_share_at_work(tmp_path: Path) -> None:
    times, pulses = pulse_train(np.random.default_rng(0), period_s=0.5, duty=0.4, samples=300)
    rows = [{"gpm_sm": 0.5 * p, "gpu_util": p} for p in pulses]  # Half of the SMs work.
    (found,) = summary(write_plain(tmp_path / "n.jsonl", times, rows), tmp_path)
    assert found.signal_column == "sm_active_pct"
    assert found.sawtooth.period_s == pytest.approx(0.5, rel=0.03)
    assert found.works_pct == pytest.approx(40, abs=2)


def test_utilization_shows_work_on_few_sms(tmp_path: Path) -> None:
    times, pulses = pulse_train(np.random.default_rng(0), period_s=1.0, duty=0.3, samples=300)
    rows = [{"gpm_sm": 0.02 * p, "gpu_util": p} for p in pulses]  # A depth of at most 2 % is not visible.
    (found,) = summary(write_plain(tmp_path / "n.jsonl", times, rows), tmp_path)
    assert found.signal_column == "util_pct"
    assert found.sawtooth.period_s == pytest.approx(1.0, rel=0.03)


def test_troughs_of_a_starved_run_are_data_waits(starved: RunResult) -> None:
    found = starved.troughs
    assert found is not None
    assert (found.causes[0][0], found.steps, found.by_work) == ("data_wait", 1, False)
    assert found.causes[0][1] > 0.9 * found.lost_ns
    assert any("data_wait" in note for note in starved.metrics["sawtooth_period_s"].notes)
