"""Tests of sweeps: ordered by the one setting that differs, with the recommended setting.

The recommendation has its reason.
"""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from typer.testing import CliRunner

from sawtooth.analysis.batch_predictions import with_predictions
from sawtooth.analysis.compare.sweep import NO_MEMORY, NOT_OF_A_TRIAL, device_memory, sweep
from sawtooth.analysis.metrics.reading import missing
from sawtooth.app.charts import sweep as charts
from sawtooth.app.cli import cli
from sawtooth.app.reports.sweep import markdown
from sawtooth.app.words.comparisons import sweep as words
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.manifest import BatchTrial, UserFacts
from tests.support.chrome_trace import matmul_loop
from tests.support.findings_of import library, result_of
from tests.support.paths import RECORDINGS
from tests.support.run_results import run_of


def batch_run(batch, step_ms, memory=None, **settings):
    return run_of(
        f"{batch:016x}",
        best_ms=step_ms,
        settings={"batch_size": str(batch), **settings},
        facts=UserFacts(samples_per_step=float(batch)),
        metrics={"peak_memory_bytes": memory} if memory else {},
    )


def test_the_smallest_batch_near_the_best_throughput_is_the_sweet_spot():
    # 8 in 10 ms: 800 samples/s; 16 in 12 ms: 1333; 32 in 20 ms: 1600; 64 in 39.5 ms: 1620, 1.2 % more than at 32.
    runs = [batch_run(64, 39.5), batch_run(8, 10.0), batch_run(32, 20.0), batch_run(16, 12.0)]
    found = sweep(runs)
    assert (found.setting, found.unit) == ("batch_size", "samples")
    assert [p.value for p in found.points] == ["8", "16", "32", "64"]
    assert [round(p.throughput.value) for p in found.points] == [800, 1333, 1600, 1620]
    assert found.points[found.sweet_spot].value == "32"
    assert "within 3 % of the best" in found.why


def test_a_batch_that_fills_the_memory_is_left_out():
    runs = [batch_run(8, 10.0, 40), batch_run(16, 12.0, 97)]
    found = sweep(runs, memory_bytes={run.manifest.id: 100 for run in runs})
    assert found.points[found.sweet_spot].value == "8"
    assert "16 would be faster but fills the memory" in found.why


def test_values_larger_than_the_largest_trial_may_be_better():
    found = sweep([batch_run(8, 10.0), batch_run(16, 12.0)])
    assert found.points[found.sweet_spot].value == "16"
    assert "larger one may give more" in found.why


def test_settings_in_words_are_compared_only_by_throughput():
    runs = [
        run_of(f"{i:016x}", best_ms=ms, tags=[f"precision={name}"])
        for i, (name, ms) in enumerate([("fp32", 50.0), ("bf16", 20.0)])
    ]
    found = sweep(runs)
    assert [p.value for p in found.points] == ["bf16", "fp32"]
    assert found.sweet_spot == 0
    assert found.unit == "steps"


def test_several_differing_settings_need_a_choice():
    runs = [batch_run(8, 10.0, workers="2"), batch_run(16, 12.0, workers="4")]
    with pytest.raises(UsageError, match="batch_size, workers"):
        sweep(runs)
    found = sweep(runs, "workers")
    assert (found.setting, found.other_settings) == ("workers", ("batch_size",))


def test_runs_without_a_setting_are_refused_with_a_sentence():
    with pytest.raises(UsageError, match="differ in no recorded setting"):
        sweep([run_of(), run_of("b" * 16)])
    with pytest.raises(UsageError, match="at least two"):
        sweep([run_of()])
    with pytest.raises(UsageError, match="has no setting"):
        sweep([batch_run(8, 10.0), run_of()])


def test_settings_come_from_the_manifest_and_from_tags():
    run = run_of(settings={"workers": "4"}, tags=["baseline", "batch=8", "workers=2"])
    assert run.manifest.all_settings == {"batch": "8", "workers": "4"}


TRIALS = [
    BatchTrial(32, step_ms=20.0, low_ms=19.0, high_ms=21.0, optimizer_ms=4.0, memory_bytes=20e9),
    BatchTrial(64, step_ms=32.0, low_ms=31.0, high_ms=33.0, optimizer_ms=4.0, memory_bytes=40e9),
    BatchTrial(100, step_ms=48.0, optimizer_ms=4.0, memory_bytes=62e9),
    BatchTrial(104),
]


def tried_run(**given):
    typical = {"best_ms": 20.4, "settings": {"batch_size": "32"}, "facts": UserFacts(samples_per_step=32.0)}
    run = run_of(**{**typical, **given})
    return replace(run, manifest=msgspec.structs.replace(run.manifest, batches=TRIALS))


def test_batch_sizes_tried_in_one_run_are_a_sweep():
    # 64 in 32 ms: 2,000 samples/s. 100 in 48 ms: 2,083. For 32, the run's own stopwatch counts: 32 / 20.4 ms = 1,569.
    arranged = sweep([tried_run()], memory_bytes={"a" * 16: 80_000_000_000})
    assert (arranged.setting, arranged.unit) == ("batch_size", "samples")
    assert [(p.value, p.is_run, p.too_large) for p in arranged.points] == [
        ("32", True, False), ("64", False, False), ("100", False, False), ("104", False, True)
    ]  # fmt: skip
    assert [p.throughput.value and round(p.throughput.value) for p in arranged.points] == [1569, 2000, 2083, None]
    assert arranged.points[1].memory_share == 0.5 and arranged.points[1].reading("best_step_time_ms").low == 31.0
    assert arranged.points[1].reading("mfu").why_missing and arranged.points[3].reading("best_step_time_ms").value is None
    assert arranged.points[arranged.sweet_spot].value == "100"
    assert "100 fits into memory and 104 does not. Use at most 80, to keep 20 % free." in arranged.why


def test_accumulation_is_shown_next_to_the_larger_batch():
    # To 100 samples: 100/64 passes of 32 ms, minus (100/64 - 1) × 4 ms of the optimizer, are 47.75 ms. At 100 nothing is accumulated.
    points = sweep([tried_run()]).points
    assert points[1].accumulated == pytest.approx(100 / 0.04775)
    assert points[2].accumulated == pytest.approx(points[2].throughput.value)
    assert points[3].accumulated is None


def test_runs_and_their_tried_sizes_share_one_table():
    other = batch_run(64, 31.0)
    arranged = sweep([tried_run(), other])
    assert [(p.value, p.is_run) for p in arranged.points] == [("32", True), ("64", True), ("100", False), ("104", False)]
    assert arranged.points[1].run.manifest.id == other.manifest.id, "a run of its own measures more than a trial"


def test_one_run_without_trials_is_a_sweep_of_the_batch_only():
    arranged = sweep([run_of(best_ms=10.0, facts=UserFacts(samples_per_step=8.0))], "batch_size")
    (point,) = arranged.points
    assert (point.value, round(point.throughput.value)) == ("8", 800)
    assert arranged.sweet_spot is None  # With one measured value there is no choice.
    assert arranged.why == "batch_size = 8 gives 800 samples/s; no other value was measured."
    with pytest.raises(UsageError, match="at least two"):
        sweep([tried_run()], "workers")


def test_predictions_of_other_sizes_are_next_to_the_measured_ones():
    # A batch of 32 takes 8.95 ms by the stopwatch and one of 2 takes 4.38 ms: two recordings of one model.
    result = result_of("gpt_small")
    truth = {
        n: json.loads((RECORDINGS / name / "truth.json").read_text()) for n, name in ((32, "gpt_small"), (2, "small_batch"))
    }
    trials = [BatchTrial(2, step_ms=1e3 * truth[2]["step_s_pipelined"]), BatchTrial(4096)]
    facts = UserFacts(samples_per_step=32.0)
    result = replace(result, manifest=msgspec.structs.replace(result.manifest, batches=trials, facts=facts))
    arranged = with_predictions(sweep([result]), {result.manifest.id: library()})
    predicted = {at.number: at for at in arranged.predicted}
    assert sorted(predicted) == [2, 8, 16, 64, 128, 4096] and {at.base for at in predicted.values()} == {32}
    measured = arranged.points[0].throughput.value
    assert predicted[2].low_per_s < measured < predicted[2].high_per_s
    assert all(at.low_per_s < at.per_s < at.high_per_s for at in predicted.values())
    rates = [predicted[n].per_s for n in sorted(predicted)]
    assert rates == sorted(rates), "a larger batch gives no fewer samples a second"
    table = words.rows(arranged)
    assert list(table["value"]) == ["2", "8", "16", "32", "64", "128", "4096"]
    assert list(table["note"])[1:3] == ["predicted only"] * 2 and table["note"].iloc[-1] == "out of memory"
    assert (
        table["predicted"].isna().tolist() == [True, True, True, True, False, False, False] and table["low"].isna().sum() == 1
    )
    text = markdown(arranged)
    assert "trace of the run with 32" in text and "only a range is given" in text and text.count("\n|") == 9
    assert charts.curve(table, "batch_size", "samples", "t", dark=False).figure.data[-1].name == "out of memory"


def test_only_sweeps_of_the_batch_size_are_predicted():
    runs = [batch_run(8, 10.0, workers="2"), batch_run(8, 12.0, workers="4")]
    runs[1] = replace(runs[1], manifest=msgspec.structs.replace(runs[1].manifest, id="c" * 16))
    arranged = sweep(runs, "workers")
    assert with_predictions(arranged, {}) is arranged
    assert "predicted" not in words.columns(arranged) and "accumulated" not in words.columns(arranged)


def command(*arguments):
    return CliRunner().invoke(cli, list(arguments))


def test_the_command_sorts_tagged_runs_and_recommends_one(tmp_path):
    # Steps of 1.0 and 0.8 ms are 1,000 and 1,250 steps per second.
    data = ["--data", str(tmp_path / "data")]
    ids = []
    for workers, step in ((2, 1000), (8, 800)):
        trace = matmul_loop(step_us=step, matmul_us=400).write(tmp_path / f"workers{workers}.json")
        ids.append(command("ingest", str(trace), "--tag", f"workers={workers}", *data).output.splitlines()[-1])
    answer = command("sweep", *ids, *data).output.replace("\u00a0", " ")
    assert "workers = 8 gives the most: 1,250 steps/s." in answer
    assert [line.split()[0] for line in answer.splitlines()[2:]] == ["workers", "2", "8"]
    found = json.loads(command("sweep", *reversed(ids), "--by", "workers", "--format", "json", *data).output)
    assert (found["setting"], found["sweet_spot"]) == ("workers", "8")
    assert [point["throughput_per_s"] for point in found["points"]] == [pytest.approx(1000), pytest.approx(1250)]
    refused = command("sweep", *ids, "--by", "batch", *data)
    assert isinstance(refused.exception, UsageError) and "have no setting 'batch'" in str(refused.exception)


def named(value, step_ms, key="workers", memory=None, **given):
    metrics = {"peak_memory_bytes": memory} if memory else {}
    return run_of(value.encode().hex().rjust(16, "0"), best_ms=step_ms, settings={key: value, **given}, metrics=metrics)


def test_the_batch_size_counts_samples_if_no_other_count_is_known():
    arranged = sweep([named("8", 10.0, "batch_size"), named("16", 12.0, "batch_size"), named("auto", 5.0, "batch_size")])
    assert [p.value for p in arranged.points] == ["8", "16", "auto"], "numbers first"
    assert [p.throughput.value and round(p.throughput.value) for p in arranged.points] == [800, 1333, None]
    assert arranged.points[2].throughput.why_missing == "The run does not say how many samples a step has."
    assert arranged.why == "batch_size = 16 gives the most: 1,333 samples/s."
    unknown = replace(named("8", 10.0, "batch_size"), metrics={**run_of().metrics, "best_step_time_ms": missing("No steps.")})
    assert sweep([unknown, batch_run(16, 12.0)]).points[0].throughput.why_missing == "No steps."


def test_work_is_counted_in_a_unit_that_every_run_has():
    def run(name, **facts):
        return run_of(name * 16, best_ms=10.0, settings={"workers": name}, facts=UserFacts(**facts))

    assert sweep([run("1", samples_per_step=8.0), run("2", samples_per_step=8.0)]).unit == "samples"
    assert sweep([run("1", samples_per_step=8.0, tokens_per_step=80.0), run("2", tokens_per_step=80.0)]).unit == "tokens"
    assert sweep([run("1", tokens_per_step=80.0), run("2")]).unit == "steps"
    assert round(sweep([run("1", tokens_per_step=80.0), run("2")]).points[0].throughput.value) == 100


def test_only_beyond_the_last_number_a_better_one_may_follow():
    assert "larger one" not in sweep([named("8", 5.0), named("16", 9.0)]).why
    assert "larger one" not in sweep([named("eager", 9.0), named("graph", 5.0)]).why
    # Among words, or words and numbers, the fastest is chosen even for a small gain, because words have no order of size.
    assert sweep([named("4", 10.1), named("auto", 10.0)]).points[-1].value == "auto" == sweep([named("4", 10.1), named("auto", 10.0)]).why.split()[2]  # fmt: skip


def test_full_memory_by_hand():
    runs = [batch_run(8, 10.0, 40), batch_run(16, 12.0, 95)]
    memory = {run.manifest.id: 100 for run in runs}
    assert (
        sweep(runs, memory_bytes=memory).points[1].value == "16" and "16 gives the most" in sweep(runs, memory_bytes=memory).why
    )
    slower = [batch_run(8, 10.0, 40), batch_run(16, 20.0, 97), batch_run(32, 50.0, 98)]  # 800, 800 and 640 samples/s
    assert "would be faster" not in sweep(slower, memory_bytes={run.manifest.id: 100 for run in slower}).why
    gpu = result_of("gpt_small")
    assert device_memory(gpu, library()) == 150_109_880_320 and device_memory(replace(gpu, lead=None), library()) is None


def test_readings_of_a_tried_size():
    points = sweep([tried_run()]).points
    step = points[1].reading("best_step_time_ms")
    assert (step.value, step.low, step.high) == (32.0, 31.0, 33.0)
    assert points[1].reading("peak_memory_bytes").low is None
    assert points[1].reading("mfu").why_missing == NOT_OF_A_TRIAL and points[3].reading("mfu").why_missing == NO_MEMORY


def test_the_smallest_size_that_does_not_fit_is_the_limit():
    run = tried_run()
    more = replace(run, manifest=msgspec.structs.replace(run.manifest, batches=[*TRIALS, BatchTrial(128)]))
    assert "100 fits into memory and 104 does not" in sweep([more]).why


def test_a_step_may_count_more_samples_than_the_batch_size():
    # a batch of 32 on each of two GPUs: 64 in 32 ms are 128 samples, 4,000 per second
    both = sweep([tried_run(facts=UserFacts(samples_per_step=64.0))])
    assert both.points[1].throughput.value == pytest.approx(4000)
    unsaid = sweep([tried_run(facts=UserFacts())])
    assert unsaid.points[1].throughput.value == pytest.approx(2000)
    automatic = sweep([tried_run(settings={"batch_size": "auto"}, facts=UserFacts())])
    assert [(p.value, p.is_run) for p in automatic.points] == [("32", False), ("64", False), ("100", False), ("104", False), ("auto", True)]  # fmt: skip
    assert automatic.points[1].throughput.value == pytest.approx(2000)


def test_trials_make_a_batch_sweep_only_if_batches_differ_or_there_is_one_run():
    one, other = (
        tried_run(settings={"batch_size": "32", "workers": "2"}),
        tried_run(settings={"batch_size": "32", "workers": "4"}),
    )
    other = replace(other, manifest=msgspec.structs.replace(other.manifest, id="b" * 16))
    arranged = sweep([one, other])
    assert (arranged.setting, arranged.other_settings) == ("workers", ()), "both have the batch size in common"
    larger = batch_run(64, 31.0, workers="4")
    arranged = sweep([one, larger])  # One of the two has trials.
    assert (arranged.setting, arranged.other_settings) == ("batch_size", ("workers",))
    with pytest.raises(UsageError, match="batch_size, workers"):
        sweep([batch_run(8, 10.0, workers="2"), larger])
    alone = tried_run(settings={"batch_size": "32", "workers": "2"})
    assert sweep([alone]).setting == "batch_size"
