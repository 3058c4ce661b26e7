"""Tests of comparisons: exact waterfall sums, swapped sides, and a run against itself.

Swapping the sides negates all differences; a run compared with itself has none.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.compare.matching import PerStepWork
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.paths import RECORDINGS, SHARED
from tests.support.run_results import run_of, side

causes = st.sampled_from([None, "data_wait", "host_sync", "launch_bound", "unattributed"])
rows = st.dictionaries(st.tuples(st.sampled_from(OWNER_KEYS), causes), st.integers(1, 10**12), min_size=1, max_size=12).map(
    lambda found: tuple((owner, cause, ns, None) for (owner, cause), ns in found.items())
)
sides = st.lists(st.tuples(rows, st.integers(1, 97)), min_size=1, max_size=3)


def runs_of(drawn):
    return [run_of(f"{i:016x}", ledger=ledger, counted=n) for i, (ledger, n) in enumerate(drawn)]


@settings(max_examples=80, deadline=None)
@given(sides, sides)
def test_the_waterfall_sums_to_the_change_of_the_mean_step_exactly(a, b):
    a, b = runs_of(a), runs_of(b)
    there = compare(side(*a), side(*b))
    back = compare(side(*b), side(*a))
    mean_a, mean_b = (sum(Fraction(r.lead.window_ns, len(r.lead.counted)) for r in runs) / len(runs) for runs in (a, b))
    assert sum((row.change_ns for row in there.waterfall), Fraction(0)) == mean_b - mean_a
    assert there.profile_ns == (mean_a, mean_b)
    assert {(r.owner, r.cause): r.change_ns for r in there.waterfall} == {
        (r.owner, r.cause): -r.change_ns for r in back.waterfall
    }
    assert back.profile.change_ms == -there.profile.change_ms
    assert back.best.change_ms == -there.best.change_ms
    assert sum(row.ms_a for row in there.waterfall_run) == pytest.approx(there.best.a, rel=1e-9)
    assert sum(row.change_ms for row in there.waterfall_run) == -sum(row.change_ms for row in back.waterfall_run)
    assert sum(row.change_ms for row in there.waterfall_run) == pytest.approx(
        there.best.change_ms, abs=1e-9 * (there.best.a + there.best.b)
    )


@settings(max_examples=30, deadline=None)
@given(sides)
def test_a_run_against_itself_is_zero_everywhere(a):
    a = runs_of(a)
    found = compare(side(*a), side(*a))
    assert all(row.change_ns == 0 for row in found.waterfall)
    assert all(row.change_ms == 0 for row in found.waterfall_run)
    assert found.best.change_ms == found.profile.change_ms == found.median.change_ms == 0
    assert all(change.change in (None, 0) for change in found.metrics)
    assert found.verdict.word == "no_difference_shown"
    assert (found.reasons, found.findings_fixed, found.findings_new, found.disagreement) == ((), (), (), None)


def test_best_step_times_lead_and_disagreement_with_the_profiles_is_reported():
    # The profiles: 40 → 46 ms; the stopwatch: 32.5 → 26.3 ms.
    a = run_of("a" * 16, ledger=(("idle", "host_sync", 40_000_000, 20.0),), best_ms=32.5, source="user")
    b = run_of("b" * 16, ledger=(("idle", "launch_bound", 46_000_000, 2.0),), best_ms=26.3, source="user")
    found = compare(side(a, steps=[39.0, 40.0, 41.0, 40.0]), side(b, steps=[45.0, 46.0, 47.0, 46.0]))
    assert found.best.change_ms == pytest.approx(-6.2)
    assert found.profile.change_ms == pytest.approx(6.0)
    assert found.verdict.word == "faster"
    for words in ("15 % more time", "19 % less time", "40 ms → 46 ms", "32.5 ms → 26.3 ms", "stopwatch"):
        assert words in found.disagreement
    assert [(r.cause, r.unprofiled_change_ms) for r in found.waterfall] == [("launch_bound", 2.0), ("host_sync", -20.0)]


@pytest.mark.parametrize(("b_ms", "noted"), [(43.0, False), (46.0, True), (50.0, True)])
def test_a_profile_that_differs_by_more_than_ten_points_is_reported(b_ms, noted):
    # The profiled steps take 40 ms on both sides. The runs' steps take 40 ms in A, and 43, 46 or 50 ms in B. So the changes
    # differ by 7.5, 15 and 25 %.
    ledger = (("idle", "host_sync", 40_000_000, None),)
    a, b = (
        run_of("a" * 16, ledger=ledger, best_ms=40.0, source="user"),
        run_of("b" * 16, ledger=ledger, best_ms=b_ms, source="user"),
    )
    assert (compare(side(a), side(b)).disagreement is not None) is noted


def test_values_known_for_all_runs_of_a_side_are_averaged():
    one, two = (run_of(c * 16, best_ms=ms, source="user") for c, ms in (("a", 10.0), ("b", 30.0)))
    lost = replace(two, metrics={**two.metrics, "best_step_time_ms": Reading(None, "No steps.")})
    found = compare(side(one, two), side(one))
    assert (found.best.a, found.best.b) == (20.0, 10.0)
    assert compare(side(one, lost), side(one)).best.a is None


def test_steps_of_the_replay_show_the_spread_if_recording_slowed_the_host(tmp_path):
    # In this host-bound recording the profiled steps take twice the estimate, and their noise is the profiler's.
    library = Library(DataFolder(tmp_path / "data"))
    folder = RECORDINGS / "mlp_eager"
    result = analyse(ingest_into_runs(library.folder, [(folder / "trace.json.gz", "t.json.gz")]).runs[0], library)
    (measured,) = side_of([result], library).measured
    library.close()
    assert sum(measured.steps_ms) / len(measured.steps_ms) == pytest.approx(result.metrics["step_time_unprofiled_est_ms"].value)
    assert measured.steps_ms != tuple(result.lead.device_step_ms)


def test_profiles_that_agree_with_the_runs_are_not_mentioned():
    a = run_of("a" * 16, ledger=(("idle", "host_sync", 40_000_000, None),), best_ms=38.0)
    b = run_of("b" * 16, ledger=(("idle", "host_sync", 30_000_000, None),), best_ms=28.5)
    assert compare(side(a), side(b)).disagreement is None


def test_other_differences_than_the_change_are_named():
    a = run_of("a" * 16, metrics={"flops_per_step": 1e12, "mfu_factor_clock": 1.0}, record_shapes=True, world_size=1)
    b = run_of(
        "b" * 16, metrics={"flops_per_step": 2e12, "mfu_factor_clock": 0.9}, with_stack=True, world_size=8, device="NVIDIA H100"
    )
    found = compare(side(a), side(b))
    assert {r.key for r in found.reasons} == {"gpu", "world_size", "record_shapes", "with_stack", "clock", "work"}
    assert all(r.sentence.endswith(".") for r in found.reasons)


def test_an_assumed_clock_is_not_a_reason():
    a, b = (run_of(i * 16, metrics={"mfu_factor_clock": clock}) for i, clock in (("a", 1.08), ("b", 1.0)))
    metrics = {
        **b.metrics,
        "mfu_factor_clock": Reading(1.0, trust="caution", notes=("The clock is not known from telemetry.",)),
    }
    assert "clock" in {r.key for r in compare(side(a), side(b)).reasons}
    assert "clock" not in {r.key for r in compare(side(a), side(replace(b, metrics=metrics))).reasons}


def test_operators_on_other_shapes_are_a_reason():
    def operators(batch):
        return [PerStepWork(f"aten::mm [[{batch},8]]", "aten::mm", f"[[{batch},8]]", "", Fraction(9), Fraction(1))]

    found = compare(side(run_of(), operators=operators(1)), side(run_of("b" * 16), operators=operators(2)))
    assert [r.key for r in found.reasons] == ["shapes"]


CONTRACT = {
    "report_version", "a", "b", "best_step_time_ms", "profile_step_time_ms", "waterfall", "kernels", "operators",
    "findings_fixed", "findings_new",
}  # fmt: skip


def test_two_traces_from_file_to_contract(tmp_path):
    library = Library(DataFolder(tmp_path / "data"))
    try:
        runs = []
        for name, trace in (("a", matmul_loop(steps=5)), ("b", matmul_loop(steps=5, step_us=800, matmul_us=400))):
            path = trace.write(tmp_path / f"{name}.json")
            runs.append(analyse(ingest_into_runs(library.folder, [(path, path.name)]).runs[0], library))
        found = json.loads(json.dumps(compare_json(compare(side_of(runs[:1], library), side_of(runs[1:], library)))))
    finally:
        library.close()
    assert set(found) >= CONTRACT
    # The step becomes 1000 → 800 µs, only by the matrix product (600 → 400 µs).
    assert found["profile_step_time_ms"]["change_ms"] == pytest.approx(-0.2)
    assert found["profile_step_time_ms"]["median"]["change_ms"] == pytest.approx(-0.2)
    assert found["best_step_time_ms"]["verdict"] == "faster"
    assert found["verdict"] == "faster_size_unknown"
    low, high = found["best_step_time_ms"]["ci95_ms"]
    assert low < found["best_step_time_ms"]["change_ms"] < high
    changed = {(r["owner"], r["cause"]): r["change_ms"] for r in found["waterfall"] if abs(r["change_ms"]) > 1e-9}
    assert changed == {("tensor_core_compute", None): pytest.approx(-0.2)}
    assert [(k["matched_by"], round(k["change_ms"], 6)) for k in found["kernels"]] == [("name", -0.2), ("name", 0.0)]
    assert {o["label"] for o in found["operators"]} == {
        "aten::mm [[1024,1024],[1024,1024]]",
        "aten::add [[1024,1024],[1024,1024],[]]",
    }


def recordings():
    return [
        (a, b) for a, b in (("gpt_sync", "gpt_nosync"), ("gpt_fp32", "gpt_fp32_bf16")) if (SHARED / "recordings" / a).is_dir()
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), recordings())
def test_recorded_fixes_are_faster_by_the_stopwatch(before, after, tmp_path):
    library = Library(DataFolder(tmp_path / "data"))
    try:
        found = []
        for name in (before, after):
            files = [(p, p.name) for p in sorted((SHARED / "recordings" / name).glob("*[!h].json*"))]
            found.append(side_of([analyse(ingest_into_runs(library.folder, files, name=name).runs[0], library)], library))
        comparison = compare(*found)
    finally:
        library.close()
    assert comparison.verdict.word == "faster"
    assert (
        sum((row.change_ns for row in comparison.waterfall), Fraction(0)) == comparison.profile_ns[1] - comparison.profile_ns[0]
    )
    if before == "gpt_sync":
        assert comparison.profile.change_ms > 0
        assert comparison.disagreement


def test_for_runs_without_gpu_work_or_steps_the_reason_is_given(tmp_path):
    library = Library(DataFolder(tmp_path / "data"))
    trace = matmul_loop()
    trace.events = [e for e in trace.events if not str(e["name"]).startswith("ProfilerStep")]
    no_steps = trace.write(tmp_path / "no_steps.json")
    host_only = matmul_loop()
    host_only.events = [e for e in host_only.events if e["cat"] == "cpu_op"]
    no_gpu = host_only.write(tmp_path / "no_gpu.json")
    try:
        sides = [
            side_of([analyse(ingest_into_runs(library.folder, [(path, path.name)]).runs[0], library)], library)
            for path in (no_steps, no_gpu, matmul_loop().write(tmp_path / "fine.json"))
        ]
        for a in sides:
            for b in sides:
                found = compare(a, b)
                json.dumps(compare_json(found), allow_nan=False)
                if a is b:
                    assert found.verdict.word == "no_difference_shown"
                else:
                    assert (found.verdict.word, found.waterfall) == ("inconclusive", ())
                    assert "No step time is known" in found.verdict.why
    finally:
        library.close()
