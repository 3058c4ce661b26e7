"""Tests of the advice for runs without GPU work: batches, workers, cores and checkpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sawtooth.analysis.findings.checking import check_host
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.loading import host_parts
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.host import HostLoad
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.app.reports import html, text
from sawtooth.app.words.headline import headline
from sawtooth.app.words.run import first_line
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.manifest import UserFacts
from sawtooth.ingest.runs.manifests import register_run
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.host_loops import LOADER, TIMED, WAITS, analysed, loop, marked
from tests.support.prepared import prepared


@pytest.fixture
def result(tmp_path: Path) -> RunResult:
    return analysed(DataFolder(tmp_path / "data").create(), loop().write(tmp_path / "host.json"))


def test_waits_outside_the_profiled_steps_come_from_the_marks(tmp_path: Path) -> None:
    """Waits for epochs' first batches, which no profiled step shows, are not part of the profiled causes.

    A profiled step waits 0.6 ms, computes 0.3 and does 0.1 of other work. In the run, 40 epochs of ten steps wait 2 ms in nine
    and 22 ms in the first, of which 20 are for the start: 4 ms of the mean step of 12, and 8 ms of work: 6 and 2.
    """
    marks, end_ns = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: 0), 0
    for step in range(400):
        first = step % 10 == 0
        end_ns += (30 if first else 10) * 1_000_000
        waited = (22_000_000, 20_000_000, 15_000_000) if first else (2_000_000, 0, 0)
        marks.mark(step, now_ns=end_ns, waited=waited)
    marks.close()
    data = DataFolder(tmp_path / "data").create()
    traced = prepared(data, loop().write(tmp_path / "host.json")).recordings
    recordings = (*traced, *prepared(data, tmp_path / "marks.jsonl").recordings)
    facts = UserFacts(**{**TIMED, "loader_sample_ms": 0.02, "loader_workers": 2, "loader_dataset_samples": 100})
    library = Library(data)
    result = result_of(register_run(data, recordings, "epochs", {}, facts=facts), library)
    library.close()
    parts, (finding,) = host_parts(result), [item for item in result.findings if item.rule == "workers-start-again"]
    assert parts == pytest.approx({"host_loading": 4.0, "host_operators": 6.0, "host_rest": 2.0}, rel=0.03)
    assert finding.ceiling_ms_per_step == pytest.approx(1.8, rel=0.03)
    assert "every 10 steps: the loader's 2 workers start again" in finding.title
    assert finding.predicted_low_ms is not None and finding.predicted_high_ms is not None
    assert finding.predicted_low_ms < 12.0 - 1.8 < finding.predicted_high_ms < 12.0
    assert "Waiting for an epoch's first batch" in text.text(result)


def test_checkpoints_between_the_steps_are_named(tmp_path: Path) -> None:
    # Every tenth of the 400 steps saves for 20 ms more than the other steps, which take 10 ms.
    marks, end_ns = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: 0), 0
    for step in range(400):
        saves = step % 10 == 5
        end_ns += (30 if saves else 10) * 1_000_000
        marks.mark(step, now_ns=end_ns, phase="checkpoint" if saves else "train", waited=(1_000_000, 0, 0))
    marks.close()
    data = DataFolder(tmp_path / "data").create()
    traced = prepared(data, loop().write(tmp_path / "host.json")).recordings
    recordings = (*traced, *prepared(data, tmp_path / "marks.jsonl").recordings)
    library = Library(data)
    result = result_of(register_run(data, recordings, "saves", {}, facts=UserFacts(**TIMED)), library)
    library.close()
    (finding,) = [item for item in result.findings if item.rule == "checkpoint-in-the-loop"]
    assert finding.ceiling_ms_per_step == pytest.approx(2.0, rel=0.05) and finding.predicted_step_ms is None
    assert finding.action is not None and finding.action.short == "Save checkpoints less often"


def test_inline_loading_gets_a_number_of_workers(tmp_path: Path) -> None:
    # A batch takes 16 × 1 ms of each 20 ms. Workers leave 4 ms, and 16 × 0.1 ms of computing on 4 cores: 4.4 ms. That
    # needs 3,636 samples/s, and 4 workers deliver 4,000.
    data = DataFolder(tmp_path / "data").create()
    result = analysed(data, marked(tmp_path / "marks.jsonl", 20.0), **WAITS, loader_workers=0)
    assert host_parts(result) == pytest.approx({"host_loading": 16.0, "host_rest": 4.0})
    finding = result.findings[0]
    assert finding.predicted_step_ms == pytest.approx(4.4)
    # Low: the host is 14 % faster, 4 ÷ 1.14 = 3.51 ms. The workers allow 3.56 ms: a worker is at most 1 ÷ 0.8 times as fast as the
    # training process while it computes, 0.9 + 0.1 · 0.8 = 0.98 ms a sample, and the model's error is 10 %: 16 · 0.98 ÷ 4 ÷ 1.1.
    # High: in a measured case, the training computed on the cores that the workers took. Its step was 1.9 times the prediction.
    assert (finding.predicted_low_ms, finding.predicted_high_ms) == pytest.approx((3.5636, 8.8), rel=1e-4)
    assert "(80\xa0% interval: 3.56 to 8.80\xa0ms), " in text.text(result)
    assert finding.fix.startswith("Load batches in 4 worker processes. A sample takes 1 ms, 100 µs of it CPU time.")
    assert finding.changes[0].after == "loader = DataLoader(dataset, …, num_workers=4, persistent_workers=True)"
    assert headline(result) == "Load batches in 4 worker processes: 20.0 → ≈\u00a04.40\u00a0ms"
    assert "The loop waits 16 ms of each 20 ms step for batches" in (text.text(result) + html.run_html(result)).replace(
        "\xa0", " "
    )
    assert "800\u00a0samples/s → ≈\u00a03,640\u00a0samples/s" in html.run_html(result)


def test_workers_that_may_cost_the_gain_are_advised_without_a_prediction(tmp_path: Path) -> None:
    # A step of 34 ms takes 18 without loading, and 18.4 with the worker's computing. It takes up to twice that, 36.8, if
    # the worker uses a core of the training.
    data = DataFolder(tmp_path / "data").create()
    finding = analysed(data, marked(tmp_path / "marks.jsonl", 34.0), **WAITS, loader_workers=0).findings[0]
    assert finding.predicted_step_ms is None and "take cores from the training" in finding.prediction_note
    assert finding.fix.startswith("Load batches in a worker process")


def test_limiting_workers_and_sufficient_ones_are_named(tmp_path: Path) -> None:
    # Two workers load 2,000 samples/s. A step of 8 ms needs exactly 2,000 samples/s, and a step of 20 ms needs 800.
    data = DataFolder(tmp_path / "data").create()
    limited = analysed(data, marked(tmp_path / "a" / "marks.jsonl", 8.0), **WAITS, loader_workers=2)
    assert (
        headline(limited) == "Use 4 loader workers instead of 2: up to 4.00\u00a0ms of each 8.00\u00a0ms step (low confidence)"
    )
    assert first_line(limited).startswith("The loop uses 2,000 samples/s, all that its 2 loader workers can load")
    kept_up = analysed(data, marked(tmp_path / "b" / "marks.jsonl", 20.0), **WAITS, loader_workers=2)
    assert not kept_up.findings
    assert headline(kept_up) == (
        "A step takes 20.0\u00a0ms, and the loader keeps up: it can load 2,000\u00a0samples/s, and the loop uses 800\u00a0samples/s."
    )


def test_more_workers_than_cores_are_reported_if_samples_compute(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    computing = {**WAITS, "loader_sample_cpu_ms": 1.0}
    found = analysed(data, marked(tmp_path / "a" / "marks.jsonl", 20.0), **computing, loader_workers=8).findings
    assert [finding.title for finding in found] == [
        "8 loader workers share 4 cores, and the work on a sample is 100 % computation"
    ]
    assert found[0].fix.startswith("Use at most 3 workers")
    for name, facts in (("b", {**computing, "loader_workers": 4}), ("c", {**WAITS, "loader_workers": 8})):
        assert not analysed(data, marked(tmp_path / name / "marks.jsonl", 20.0), **facts).findings


def test_batch_waits_of_a_cpu_profile_give_advice(result: RunResult) -> None:
    finding = result.findings[0]
    assert finding.ceiling_ms_per_step == pytest.approx(0.6) and finding.predicted_step_ms is None  # No sample was timed.
    assert headline(result) == "Load batches in a worker process: up to 600\u00a0µs of each ≈\u00a01.00\u00a0ms step"
    assert "The host waits for batches 60" in text.text(result)


def test_no_advice_for_more_workers_than_cores(tmp_path: Path) -> None:
    """Sixteen workers compute on four cores, and the loop waits for them.

    Further workers would wait for a core too.
    """
    trace = ChromeTrace()
    for at in trace.each_step(6, 20_000, first=0):
        trace.host("user_annotation", LOADER.replace("_SingleProcess", "_MultiProcessing"), at, at + 12_000)
        trace.op("aten::mm", at + 12_100, at + 19_900)
    computing = {**WAITS, "loader_sample_cpu_ms": 1.0}
    data = DataFolder(tmp_path / "data").create()
    found = analysed(data, trace.write(tmp_path / "crowded.json"), **computing, loader_workers=16).findings
    starves = next(f for f in found if f.rule == "data-loader-starves-gpu")
    assert starves.fix.startswith("Make a sample cheaper: ") and "more workers" not in starves.fix
    assert (starves.changes, starves.action.amount, starves.predicted_step_ms) == ((), None, None)
    assert "workers-beyond-cores" in {f.rule for f in found}
    few = analysed(data, trace.write(tmp_path / "few.json"), **WAITS, loader_workers=1).findings[0]
    assert few.fix.startswith("Use 2 loader workers instead of 1.") and "num_workers=2" in few.changes[0].after


def test_no_advice_for_more_workers_on_a_full_cpu(tmp_path: Path) -> None:
    """In 300 of 1000 µs, the loop waits for 5 workers; in 600 µs it runs operators. There are 2 cores."""
    trace = ChromeTrace()
    for at in trace.each_step(5, 1000, first=0):
        trace.host("user_annotation", LOADER.replace("Single", "Multi").replace("Process", "Processing", 1), at, at + 300)
        trace.op("aten::mm", at + 350, at + 950)
    facts = WAITS | {"loader_workers": 5, "loader_cores": 2}
    finding = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "cpu.json"), **facts).findings[0]
    assert "the CPU is the limit" in finding.fix and finding.action.amount is None and finding.predicted_step_ms is None
    assert not any("num_workers" in change.after for change in finding.changes)


def test_a_host_without_a_free_core_is_named(tmp_path: Path) -> None:
    result = analysed(DataFolder(tmp_path / "data").create(), loop().write(tmp_path / "trace.json"))
    assert "workers-beyond-cores" not in {finding.rule for finding in result.findings}
    busy = HostLoad({"cpu_pct": 99.0, "cores": 2.0, "run_queue": 5.1}, {}, 9)
    crowded, _ = check_host(replace(result, telemetry=RunTelemetry((), host=busy)))
    (finding,) = [finding for finding in crowded if finding.rule == "workers-beyond-cores"]
    assert finding.title == "This host has no free core: 2 cores are busy 99 % of the time, and 5.1 tasks want one"
    assert finding.action is not None and finding.action.short == "Ask for more cores"


def test_waits_for_a_core_are_not_reported_as_disk_waits(tmp_path: Path) -> None:
    result = analysed(DataFolder(tmp_path / "data").create(), loop().write(tmp_path / "trace.json"), **WAITS)
    assert "for a disk, a network, a lock" in result.findings[0].title
    busy = HostLoad({"cpu_pct": 99.0, "cores": 2.0, "run_queue": 5.1}, {}, 9)
    crowded, _ = check_host(replace(result, telemetry=RunTelemetry((), host=busy)))
    finding = next(finding for finding in crowded if finding.rule == "data-loader-starves-gpu")
    assert finding.title.endswith(": this host has no free core: 2 cores are busy 99 % of the time, and 5.1 tasks want one")
    assert "workers-beyond-cores" not in {finding.rule for finding in crowded}, "one finding says so"
    assert finding.action is not None and finding.action.short == "Ask for more cores"
    assert finding.action.sentence.endswith("Then load in worker processes.") and finding.predicted_step_ms is None
    has_core = HostLoad({**busy.means, "main_waits_pct": 4.0}, {}, 9)
    crowded, _ = check_host(replace(result, telemetry=RunTelemetry((), host=has_core)))
    finding = next(finding for finding in crowded if finding.rule == "data-loader-starves-gpu")
    assert "for a disk, a network, a lock" in finding.title, "the thread that loads the samples hardly waits for a core"
