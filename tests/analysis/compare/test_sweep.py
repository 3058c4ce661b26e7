"""Sweeps: arranged by the one setting that differs, and the setting to choose with its reason."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from sawtooth.analysis.compare.sweep import settings_of, sweep
from sawtooth.app.cli import cli
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import UserFacts
from tests.support.chrome_trace import matmul_loop
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
    assert "within 3% of the best" in found.why


def test_a_batch_that_fills_the_memory_is_left_out():
    runs = [batch_run(8, 10.0, 40), batch_run(16, 12.0, 97)]
    found = sweep(runs, memory_bytes={run.manifest.id: 100 for run in runs})
    assert found.points[found.sweet_spot].value == "8"
    assert "16 would be faster but fills the memory" in found.why


def test_the_largest_value_tried_may_not_be_the_last_word():
    found = sweep([batch_run(8, 10.0), batch_run(16, 12.0)])
    assert found.points[found.sweet_spot].value == "16"
    assert "larger one may give more" in found.why


def test_words_are_compared_by_throughput_alone():
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
    assert (found.setting, found.others) == ("workers", ("batch_size",))


def test_runs_without_a_setting_are_refused_in_words():
    with pytest.raises(UsageError, match="differ in no recorded setting"):
        sweep([run_of(), run_of("b" * 16)])
    with pytest.raises(UsageError, match="at least two"):
        sweep([run_of()])
    with pytest.raises(UsageError, match="has no setting"):
        sweep([batch_run(8, 10.0), run_of()])


def test_settings_are_the_manifest_s_and_those_of_tags():
    run = run_of(settings={"workers": "4"}, tags=["baseline", "batch=8", "workers=2"])
    assert settings_of(run.manifest) == {"batch": "8", "workers": "4"}


def command(*arguments):
    return CliRunner().invoke(cli, list(arguments))


def test_the_command_arranges_tagged_runs_and_names_the_one_to_choose(tmp_path):
    # Steps of 1.0 and 0.8 ms: 1,000 and 1,250 a second.
    data = ["--data", str(tmp_path / "data")]
    ids = []
    for workers, step in ((2, 1000), (8, 800)):
        trace = matmul_loop(step_us=step, matmul_us=400).write(tmp_path / f"workers{workers}.json")
        ids.append(command("ingest", str(trace), "--tag", f"workers={workers}", *data).output.splitlines()[-1])
    said = command("sweep", *ids, *data).output.replace("\u00a0", " ")
    assert "workers = 8 gives the most: 1250 steps/s." in said
    assert [line.split()[0] for line in said.splitlines()[2:]] == ["workers", "2", "8"]
    found = json.loads(command("sweep", *reversed(ids), "--by", "workers", "--format", "json", *data).output)
    assert (found["setting"], found["sweet_spot"]) == ("workers", "8")
    assert [point["throughput_per_s"] for point in found["points"]] == [pytest.approx(1000), pytest.approx(1250)]
    refused = command("sweep", *ids, "--by", "batch", *data)
    assert isinstance(refused.exception, UsageError) and "have no setting 'batch'" in str(refused.exception)
