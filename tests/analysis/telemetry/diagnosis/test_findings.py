"""Tests of findings from a telemetry log alone, in the headline, the reports, the JSON and the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sawtooth.analysis.findings.sampled.from_telemetry import name_gpus
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.diagnosis import device_samples
from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.diagnose import diagnose
from sawtooth.analysis.telemetry.diagnosis.not_observable import not_observable
from sawtooth.app.reports import html, text
from sawtooth.app.words.headline import below, headline
from sawtooth.app.words.telemetry import busiest
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.prepared import prepared
from tests.support.sampled_hosts import GIB, Trouble, host
from tests.support.smi_log import smi_log


def analysed(folder: Path, *logs: Path) -> RunResult:
    data = DataFolder(folder / "data").create()
    manifest, library = prepared(data, *logs), Library(data)
    try:
        return result_of(manifest, library)
    finally:
        library.close()


def said(result: RunResult) -> str:
    return text.text(result).replace("\u00a0", " ").replace("\u202f", " ")


@pytest.fixture(scope="module")
def hot(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """Return a host with 4 GPUs. Because of heat, GPU 2 runs at half its clock in 240 of 600 samples."""
    folder = tmp_path_factory.mktemp("hot")
    heat = Trouble("thermal-throttling", (2,), 0.5, 300, 539)
    return analysed(folder, smi_log(folder / "smi.csv", host(3, gpus=4, seconds=600, troubles=(heat,))))


def test_the_first_finding_is_the_headline(hot: RunResult) -> None:
    (finding,) = [finding for finding in hot.findings if finding.severity != "info"]
    assert (finding.rule, finding.severity, finding.confidence) == ("thermal-slowdown", "critical", "high")
    line = headline(hot).replace("\u00a0", " ").replace("\u202f", " ")
    assert line == "Heat reduces the clock of GPU 2 by 50 %."
    assert "in 240 of 600 samples, 40 % of the time: hardware thermal slowdown (0x40)" in finding.observed
    assert "up to 2.00 times as long" in finding.observed
    assert "600 samples over 10 min, one every 1 s." in finding.observed and "no samples" not in finding.observed
    row = finding.evidence[0]
    assert row["gpus"] == "GPU 2" and row["share"] == pytest.approx(0.4, abs=0.01)
    assert (row["end_ns"] - row["start_ns"]) / 1e9 == pytest.approx(239, abs=1)


def test_all_report_formats_show_the_finding(hot: RunResult) -> None:
    (finding, *_) = hot.findings
    assert finding.title in report_json(hot)["findings"][0]["title"]
    assert report_json(hot)["findings"][0]["observed"] == finding.observed
    under = below(hot)
    assert under is not None and "The busiest of 4 GPUs was in use" in under
    page = html.run_html(hot)
    for words in ("hardware thermal slowdown (0x40)", "Check cooling and airflow of GPU 2", "nvidia-smi -q -d PERFORMANCE"):
        assert words in said(hot) and words in page


def test_missing_columns_are_listed_as_not_checked(hot: RunResult) -> None:
    reasons = {rule.rule: rule.because for rule in hot.not_checked}
    assert {"narrow-pcie-link", "memory-errors", "xid-error", "low-activity"} == set(reasons)
    assert "pcie.link.width.current" in reasons["narrow-pcie-link"] and "pcie.link.width.current" in said(hot)


def test_advice_names_tools_for_these_gpus() -> None:
    (gpu,) = host(3, gpus=1, seconds=60)
    bare = DeviceSamples(0, "NVIDIA Jetson", gpu.times, {"util_pct": gpu.values["util_pct"]})
    of_jetson = {entry.kind: entry.reason for entry in not_observable([bare])}
    assert "nvidia-smi" not in str(of_jetson) and not {"narrow-pcie-link", "memory-errors", "xid-error"} & of_jetson.keys()
    of_amd = {entry.kind: entry.reason for entry in not_observable([replace(bare, name="AMD GPU")])}
    assert of_amd["memory-errors"] == "the samples have no ECC counters: record amd-smi metric --ecc" and "nvidia" not in str(
        of_amd
    )


def test_a_finding_of_an_amd_gpu_names_no_tool_of_nvidia() -> None:
    troubles = (
        Trouble("thermal-throttling", (0,), 0.5, 100, 400), Trouble("hardware-throttling", (1,), 0.4, 100, 400), Trouble("power-throttling", (2,), 0.7, 100, 500),
        Trouble("narrow-pcie-link", (3,), 4), Trouble("memory-errors", (2,), 3, 200), Trouble("several-processes", (0,), 2, 100, 400), Trouble("low-clock", (3,), 0.6),
    )  # fmt: skip
    gpus = host(3, gpus=4, seconds=600, troubles=troubles)
    of_nvidia, of_amd = diagnose(gpus), diagnose([replace(gpu, name="AMD Instinct MI300X") for gpu in gpus])
    assert [one.kind for one in of_amd] == [one.kind for one in of_nvidia] and len({one.kind for one in of_amd}) >= 6
    said_of = [f"{one.action[2]} {one.record_next}" for one in of_amd]
    assert not [words for words in said_of if any(tool in words for tool in ("nvidia", "dcgmi", "clocks_event"))]
    assert sum("amd-smi" in words for words in said_of) >= 5


def test_short_work_between_idle_times_is_not_called_idle(tmp_path: Path) -> None:
    """Bursts of 2 s and 4 s in 65 s are typical of single requests.

    The text says which part of the log the mean covers.
    """
    (gpu,) = host(3, gpus=1, seconds=65)
    at = np.arange(len(gpu.times))
    busy = np.where(((at >= 15) & (at < 17)) | ((at >= 27) & (at < 32)), 80.0, 0.0)
    bursts = replace(gpu, values={"util_pct": busy})
    assert not [one for one in diagnose([bursts]) if "all the time" in one.title]
    longer = replace(gpu, values={"util_pct": np.where((at >= 15) & (at < 35), 80.0, 0.0)})
    result = analysed(tmp_path, smi_log(tmp_path / "smi.csv", [longer], ("util_pct",)))
    assert "80 % of the time (steady part: 1" in headline(result).replace("\u00a0", " ")
    assert "s of 64.0 s)" in headline(result).replace("\u00a0", " ")


def test_an_error_counter_that_reads_zero_once_shows_no_errors() -> None:
    (gpu,) = host(3, gpus=1, seconds=60)
    count = np.full(len(gpu.times), 5.0)
    count[30] = 0.0
    assert "memory-errors" not in {
        one.kind for one in diagnose([replace(gpu, values={**gpu.values, "ecc_uncorrected_count": count})])
    }
    count[30:] = 2.0  # Reset, and two errors since.
    (errors,) = [
        one
        for one in diagnose([replace(gpu, values={**gpu.values, "ecc_uncorrected_count": count})])
        if one.kind == "memory-errors"
    ]
    assert errors.value == 2


def test_telemetry_gap_is_unknown_and_not_idle(tmp_path: Path) -> None:
    gpus = host(5, gpus=2, seconds=900)
    result = analysed(tmp_path, smi_log(tmp_path / "smi.csv", gpus, ("util_pct", "mem_used_bytes"), hole=(400, 700)))
    assert not [
        finding for finding in result.findings if finding.rule == "idle-stretch" and finding.evidence[0]["share"] > 0.06
    ]
    creeping = host(5, gpus=2, seconds=900, troubles=(Trouble("memory-growth", (0, 1), 9 * GIB),))
    found = analysed(
        tmp_path / "creep", smi_log(tmp_path / "creep.csv", creeping, ("util_pct", "mem_used_bytes"), hole=(400, 700))
    )
    (creep,) = [finding for finding in found.findings if finding.rule == "memory-creep"]
    assert "33 % of that time has no samples and counts as unknown." in creep.observed
    start, end = map(float, re.findall(r"[\d.]+", creep.title.split(" from ")[1])[:2])
    assert "GiB" in creep.title and end - start == pytest.approx(9, rel=0.1)  # The title uses the unit of the peak memory.


def test_samples_without_reasons_do_not_report_heat(tmp_path: Path) -> None:
    heat = Trouble("thermal-throttling", (2,), 0.5, 100, 590)
    columns = ("util_pct", "clock_sm_mhz", "temp_c")
    result = analysed(tmp_path, smi_log(tmp_path / "smi.csv", host(3, gpus=4, seconds=600, troubles=(heat,)), columns))
    assert "thermal-slowdown" in {rule.rule for rule in result.not_checked}
    (finding,) = [finding for finding in result.findings if finding.severity == "warning"]
    assert finding.rule == "low-clock" and "not recorded" in finding.observed
    assert "eat slows" not in said(result)


def test_findings_of_two_hosts_have_host_names(tmp_path: Path) -> None:
    heat = Trouble("thermal-throttling", (1,), 0.6, 100, 590)
    logs = [
        smi_log(tmp_path / f"{name}.csv", host(seed, gpus=2, seconds=600, troubles=troubles))
        for seed, (name, troubles) in enumerate({"node-a": (), "node-b": (heat,)}.items())
    ]
    result = analysed(tmp_path, *logs)
    (finding,) = [finding for finding in result.findings if finding.rule == "thermal-slowdown"]
    assert (
        finding.title.startswith("node-b.csv: Heat reduces the clock of GPU 1 by 40 %")
        and finding.evidence[0]["host"] == "node-b.csv"
    )


def test_too_few_samples_are_reported(tmp_path: Path) -> None:
    result = analysed(tmp_path, smi_log(tmp_path / "smi.csv", host(3, gpus=1, seconds=15)))
    assert not result.findings
    assert "15 samples over 14 s are too few; at least 20 samples over 20 s are needed" in said(result)


def test_no_warning_for_a_healthy_log(tmp_path: Path) -> None:
    result = analysed(tmp_path, smi_log(tmp_path / "smi.csv", host(8, gpus=4, seconds=600)))
    assert [finding.title for finding in result.findings if finding.severity != "info"] == []
    assert headline(result).startswith("The busiest of 4 GPUs was in use")


def test_samples_with_a_profile_report_only_what_it_cannot_show(tmp_path: Path) -> None:
    """The trace is of one GPU and some steps.

    GPU 2 of the host is hot, and all GPUs are idle at first.
    """
    troubles = (Trouble("thermal-throttling", (2,), 0.5, 300, 539), Trouble("idle-stretch", (0, 1, 2, 3), 200, 0))
    log = smi_log(tmp_path / "smi.csv", host(3, gpus=4, seconds=600, troubles=troubles))
    result = analysed(tmp_path, matmul_loop().write(tmp_path / "trace.json"), log)
    assert result.lead is not None
    assert [(finding.rule, finding.evidence[0]["gpus"]) for finding in result.findings if finding.observed] == [
        ("thermal-slowdown", "GPU 2")
    ]
    assert "Heat reduces the clock of GPU 2 by 50 %" in said(result)


def test_large_fleet_is_thinned_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only 1,200 of 3,600 rows fit, so every third row is read."""
    monkeypatch.setattr(device_samples, "MAX_VALUES", 1200 * len(device_samples.USED))
    heat = Trouble("thermal-throttling", (2,), 0.5, 300, 699)
    result = analysed(tmp_path, smi_log(tmp_path / "smi.csv", host(3, gpus=4, seconds=900, troubles=(heat,))))
    (finding,) = [finding for finding in result.findings if finding.severity == "critical"]
    assert finding.rule == "thermal-slowdown" and finding.evidence[0]["devices"] == [2]
    assert finding.evidence[0]["share"] == pytest.approx(400 / 900, abs=0.01)
    assert "Based on 300 samples over 15 min, one every 3 s." in finding.observed


def test_gpu_in_a_scrape_of_several_hosts_is_named_with_its_host(tmp_path: Path) -> None:
    """GPU 1 of node-2 is busy 20 % of the time, the other seven 95 %."""
    lines = [
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}",UUID="GPU-{host}{gpu}",Hostname="node-{host}"}} {20 if (host, gpu) == (2, 1) else 95} {at}'
        for at in range(1790496000000, 1790496000000 + 100 * 30_000, 30_000)
        for host in (1, 2)
        for gpu in range(4)
    ]
    (tmp_path / "scrapes.txt").write_text("\n".join(lines))
    result = analysed(tmp_path, tmp_path / "scrapes.txt")
    (finding,) = [finding for finding in result.findings if finding.severity == "warning"]
    assert finding.title == "node-2 GPU 1 is busy 20 % of the time, its 7 peers 95 %"
    assert "the process on node-2 GPU 1 with the others" in finding.fix and finding.evidence[0]["gpus"] == "node-2 GPU 1"


def test_node_labels_replace_all_numbers_of_a_list() -> None:
    places = {"0": "a GPU 0", "3": "a GPU 3", "4": "b GPU 0"}
    assert name_gpus("GPUs 0, 3 and 4 wait; GPU 4, or GPU 7", places) == "a GPU 0, a GPU 3 and b GPU 0 wait; b GPU 0, or GPU 7"
    assert name_gpus("All 8 GPUs, 0.9 GPU-hours", places) == "All 8 GPUs, 0.9 GPU-hours"


def test_the_mean_of_a_log_with_gaps_is_that_of_the_job_with_most_samples(tmp_path: Path) -> None:
    """The first of two jobs lasts longer, but most of it is a gap in the samples."""
    (first,), (second,) = host(3, gpus=1, seconds=120), host(4, gpus=1, seconds=900)
    step = int(first.times[1] - first.times[0])
    ends = np.concatenate([np.full(60, 10.0), np.full(60, 95.0)])
    gap = np.where(np.arange(120) < 60, 0, 3600 * 10**9)
    idle = first.times[-1] + gap[-1] + step * np.arange(1, 121)
    times = np.concatenate([first.times + gap, idle, second.times - second.times[0] + idle[-1] + step])
    util = np.concatenate([np.maximum(ends, 25.0), np.zeros(120), np.full(len(second.times), 90.0)])
    memory = np.where(util > 0, 20 * GIB, 0.4 * GIB)
    path = tmp_path / "smi.csv"
    rows = [f"{t / 1e9:.3f},{u:.0f},{m / (1 << 20):.0f}" for t, u, m in zip(times, util, memory, strict=True)]
    path.write_text("\n".join(["timestamp,utilization.gpu [%],memory.used [MiB]", *rows]) + "\n")
    said_of_gpu = busiest(analysed(tmp_path, path)) or ""
    assert said_of_gpu.replace("\u00a0", " ") == (
        "The GPU was in use 90 % of the time (steady part: 14.9 min of 19.0 min of samples within 79.0 min)"
    )


def test_growing_memory_and_its_time_come_from_the_same_windows(tmp_path: Path) -> None:
    """The first windows, below 30 % of the peak, are start-up; memory grows by 300 MB a minute throughout."""
    path = tmp_path / "creep.csv"
    rows = [f"{1_700_000_000 + seconds},97,{10_000 + seconds * 5 / 1.048576:.0f}" for seconds in range(0, 10_800, 10)]
    path.write_text("\n".join(["timestamp,utilization.gpu [%],memory.used [MiB]", *rows]) + "\n")
    (creep,) = [finding for finding in analysed(tmp_path, path).findings if finding.rule == "memory-creep"]
    start, end, minutes = map(float, re.findall(r"[\d.]+", creep.title)[:3])
    assert minutes < 170 and (end - start) / minutes == pytest.approx(0.3e9 / 2**30, rel=0.02)
    assert "by 17 GiB per hour" in creep.observed
