"""Tests of the rows of differences between two sides: they agree with the headline."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import msgspec

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.matching import Match
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.compare.significance.certainty import Verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.compare.throughput import Throughput
from sawtooth.analysis.integrity.failed_check import FailedCheck
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.run.audit import AuditRow
from sawtooth.app import format as fmt
from sawtooth.app.agent.answers import comparison_of
from sawtooth.app.charts.waterfall import WaterfallBar
from sawtooth.app.reports import comparison as comparison_text
from sawtooth.app.words.comparisons import audit, basis, changes, intervals, limits, setup_changes, step_parts
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.app.words.comparisons.row import ComparisonRow, reasons_once
from sawtooth.ingest.manifest import UserFacts
from tests.support.run_results import finding_of, run_of, side

READING = Reading(2e-5, trust="caution")


def test_rows_based_on_the_step_agree_with_the_headline():
    # 30 ± 6 → 28 ± 6 ms is no change. MFU and utilization are work and busy time divided by that step, so they show no
    # change.
    metrics = [
        {"mfu": 0.30, "nvml_gpu_util_mean": 0.80, "kernel_launches_per_step": 900.0},
        {"mfu": 0.33, "nvml_gpu_util_mean": 0.70, "kernel_launches_per_step": 500.0},
    ]
    sides = []
    for name, best, values in zip("ab", (30.0, 28.0), metrics, strict=True):
        run = run_of(name * 16, best_ms=best, source="telemetry", metrics=values)
        measured = MeasuredSteps((best,) * 3, best, "telemetry", (name,), low_ms=best - 6, high_ms=best + 6)
        sides.append(replace(side(run), measured=(measured,)))
    found = compare(*sides)
    answer = {row[0]: row[3] for row in changes.metric_rows(found)}
    assert words.headline(found).startswith("Cannot tell whether ")
    assert [answer[label] for label in ("Step time", "MFU")] == ["cannot tell"] * 2
    assert {changes.label(c.key): found.metric_word(c) for c in found.metrics if c.change}["Kernels per step"] == "changed"
    marked = {row[0]: row[3] for row in changes.changed_rows(found)[0]}
    assert not {row.what for row in changes.changed_rows(found, {"mfu"})[0]} ^ (set(marked) - {"MFU"})
    assert marked["Step time"] == "cannot tell" and "MFU" not in marked
    data = compare_json(found)
    assert data["metrics"]["mfu"]["says"] == data["metrics"]["best_step_time_ms"]["says"] == "cannot_tell"
    report = comparison_text.markdown(found)
    assert "cannot tell" in report and "no measurable change" not in report and "✓ better" not in words.tab_title(found)


def test_a_run_compared_with_itself_is_named_as_such():
    run = run_of("a" * 16, best_ms=15.0, source="marks")
    same = compare(side(run), side(run))
    assert words.headline(same).startswith("A and B are the same run") and "confidence" not in words.below(same)
    cut = run_of("b" * 16, best_ms=None)
    cut = replace(cut, diagnostics=[Diagnostic("truncated", "error", "The trace ends before its closing bracket.", 1)])
    cut.metrics["best_step_time_ms"] = Reading(None, "No step is whole.")
    found = compare(replace(side(cut), measured=(MeasuredSteps((), None, "profile", ("b",)),)), side(run))
    assert "no step time is known" in words.headline(found) and step_parts.steps_divided(found) == ()
    assert words.below(found) == "The trace of A is cut off. Record it again."
    marked_nowhere = run_of("b" * 16, best_ms=None)
    marked_nowhere.metrics["best_step_time_ms"] = Reading(None, "No steps were found.")
    found = compare(replace(side(marked_nowhere), measured=(MeasuredSteps((), None, "profile", ("b",)),)), side(run))
    assert words.below(found) == "Record both sides with `sawtooth run`, which times every step."


def test_a_reason_shared_by_several_rows_is_written_once():
    why = "No shapes of matrix products are recorded. Profile with `record_shapes=True`."
    rows = [
        ComparisonRow("MFU", "—", "22 %", why),
        ComparisonRow("Step", "1 ms", "2 ms", "+1 ms"),
        ComparisonRow("HFU", "—", "25 %", why),
        ComparisonRow("Wait", "1 ms", "2 ms", "+1 ms"),
    ]
    assert [row.change for row in reasons_once(rows)] == [why, "+1 ms", "for the same reason", "+1 ms"]


def test_a_comparison_names_the_failed_training():
    # Without this message, the comparison would look complete.
    failed = "The command ended with exit code 1 after 351 steps."
    a, b = (run_of(n * 16, best_ms=ms, source="user") for n, ms in (("a", 30.0), ("b", 20.0)))
    b = replace(b, manifest=msgspec.structs.replace(b.manifest, notes=f"Recorded by `sawtooth run train.py`.\n{failed}"))
    assert [line for line in limits.sentences(compare(side(a), side(b))) if "exit code" in line] == [f"B: {failed}"]


def test_less_than_a_percent_is_neither_better_nor_worse():
    """The step is certainly a third shorter; utilization changes by 0.04 % of itself."""
    a, b = (
        side(
            run_of(n * 16, best_ms=ms, source="user", metrics={"nvml_gpu_util_mean": used, "mfu": used}),
            steps=[ms - 0.1, ms, ms + 0.1] * 10,
        )
        for n, ms, used in (("a", 30.0, 0.7000), ("b", 20.0, 0.7003))
    )
    found = compare(a, b)
    answer = {change.key: found.metric_word(change) for change in found.metrics}
    assert (answer["best_step_time_ms"], answer["mfu"], answer["nvml_gpu_util_mean"]) == (
        "better",
        "not_measurable",
        "not_measurable",
    )


def test_descriptive_values_are_better_only_with_a_faster_run():
    # The step is a quarter shorter. The GPU is busy for less of it, fewer shapes are in the trace, and 11.3 % is followed
    # by 11.1 %.
    values = [
        {"mfu": 0.20, "mfu_factor_busy": 0.97, "flop_coverage": 1.0, "mfu_factor_clock": 0.113, "nvml_gpu_util_mean": 0.60},
        {"mfu": 0.25, "mfu_factor_busy": 0.64, "flop_coverage": 0.95, "mfu_factor_clock": 0.111, "nvml_gpu_util_mean": 0.70},
    ]
    fast, slow = (
        side(run_of(n * 16, best_ms=ms, source="user", metrics=used), steps=[ms - 0.1, ms, ms + 0.1] * 10)
        for n, ms, used in (("b", 15.0, values[1]), ("a", 20.0, values[0]))
    )
    there = {change.key: compare(slow, fast).metric_word(change) for change in compare(slow, fast).metrics}
    assert [there[key] for key in ("best_step_time_ms", "mfu", "nvml_gpu_util_mean")] == ["better"] * 3
    assert [there[key] for key in ("mfu_factor_busy", "flop_coverage")] == ["changed"] * 2
    assert there["mfu_factor_clock"] == "not_measurable"
    back = {change.key: compare(fast, slow).metric_word(change) for change in compare(fast, slow).metrics}
    assert [back[key] for key in ("mfu", "nvml_gpu_util_mean", "mfu_factor_busy", "flop_coverage")] == [
        "worse", "worse", "changed", "changed",
    ]  # fmt: skip


def test_shares_change_by_points_in_the_audit_too():
    assert fmt.points(0.796) == "+80\u00a0points" and fmt.points(-0.0031) == "−0.31\u00a0points"


def test_a_cpu_step_and_a_gpu_step_are_not_a_change():
    gpu = run_of("a" * 16, best_ms=773.0, source="user")
    cpu = run_of("b" * 16, best_ms=39.5, source="user")
    found = compare(side(gpu), replace(side(cpu), runs=(replace(cpu, lead=None, ranks=[]),)))
    assert {change.key: found.metric_word(change) for change in found.metrics}["best_step_time_ms"] == "changed"
    assert found.cpu_beside_gpu and found.prediction is None and found.effects == ()
    assert (
        words.headline(found)
        == f"{gpu.manifest.name} ran on NVIDIA H200 and {cpu.manifest.name} ran on the CPU: 773\u00a0ms and ≈\u00a039.5\u00a0ms per step."
    )
    assert words.below(found).endswith("do not show the effect of a change to the training.") and words.findings(found) == []
    assert compare_json(found)["reasons_not_to_compare"][0]["key"] == "gpu_work"
    lost = FailedCheck("gpu_records_missing", 5, "Lost.", headline="The GPU's records are missing.")
    unknown = replace(cpu, failed=(lost,), metrics={**cpu.metrics, "best_step_time_ms": missing("Lost.")})
    found = compare(side(gpu), replace(side(unknown), runs=(replace(unknown, lead=None, ranks=[]),)))
    assert words.headline(found) == f"No verdict. {cpu.manifest.name}: The GPU's records are missing."


def test_a_nearly_constant_kernel_time_is_not_mentioned():
    def match(ns_a, ns_b):
        return Match("name", "k", "", "", "", (), (), Fraction(ns_a), Fraction(ns_b))

    found = compare(side(run_of("a" * 16)), side(run_of("b" * 16)))  # Steps of 1,000 ns.
    large, small, steady = match(100, 300), match(5, 5.9), match(500, 504)
    assert changes.moved((large, small, steady), found) == (large,)
    assert changes.match_title((), "kernel") == "No kernel's time changed by as much as 0.10\u00a0% of the step"


def test_the_change_of_a_part_is_described_as_time():
    assert WaterfallBar("idle", "data_wait", 56.3, 0.3).label_in_sentence == "waiting for the data loader"
    assert WaterfallBar("exposed_comm", "comm_transfer", 20.7, 1.7).label == "communication transfer"


def test_a_bound_is_not_written_as_approximate():
    assert audit.shown(AuditRow("mfu", "MFU", "share", "higher", READING), READING) == "<\u00a00.01\u00a0%"


def test_time_outside_the_profiled_steps_is_gpu_waiting():
    # A step takes 12 ms, of which the profiled steps show 6 (1 of work, 5 of launches): the GPU waits 11.
    bars = [
        WaterfallBar("other_compute", None, 1.0, 1.0),
        WaterfallBar("idle", "launch_bound", 11.0, 5.0),
        WaterfallBar("outside_profile", None, 0.0, 6.0),
    ]
    assert step_parts.idle_title(bars, "run") == "The GPU waits 92\u00a0% of A's step and 92\u00a0% of B's"


def test_low_confidence_has_its_reason_and_a_missing_gpu_comes_first():
    runs = [
        run_of(n * 16, best_ms=ms, source="user", facts=UserFacts(samples_per_step=samples))
        for n, ms, samples in (("a", 30.0, 8), ("b", 33.0, 16))
    ]
    found = compare(side(runs[0]), side(runs[1]))
    low = replace(found.throughput.verdict, word="faster", confidence="low", why="Few steps.")
    changed_rate = replace(found, throughput=replace(found.throughput, verdict=low))
    assert words.below(changed_rate).endswith("Low confidence. Few steps.")
    reported = comparison_of(changed_rate)
    assert (reported.verdict, reported.confidence, reported.why) == (compare_json(changed_rate)["verdict"], "low", "Few steps.")
    without = replace(found, b=replace(found.b, runs=(replace(runs[1], lead=None),)))
    assert words.below(without).startswith("The profile of B contains no GPU work.")


def test_a_removed_part_is_none_and_a_narrow_interval_is_one_number():
    assert setup_changes._ms(WaterfallBar("idle", "data_wait", 0.0, 1.0), 0.0, "none", 1.0) == "none"
    assert fmt.span_ms(101.9, 102.1) == "102\u00a0ms"


def test_growing_and_shrinking_parts_are_described_separately():
    # Here products and other work grow, and only the launches shrink. Their sum must not appear as a decrease of all other parts.
    ms_ns = 1_000_000
    before = (
        ("other_compute", None, 1 * ms_ns, None),
        ("tensor_core_compute", None, 1 * ms_ns, None),
        ("idle", "launch_bound", 8 * ms_ns, None),
    )
    after = (("other_compute", None, 26 * ms_ns, None), ("tensor_core_compute", None, 5 * ms_ns, None))
    a, b = (
        side(run_of(n * 16, ledger=rows, source="user"), steps=[ms, ms] * 10)
        for n, rows, ms in (("a", before, 10.0), ("b", after, 31.0))
    )
    assert words.main_part(compare(a, b)) == (
        "Other compute grew by 25.0\u00a0ms, other parts grew by 4.00\u00a0ms, and the rest fell by 8.00\u00a0ms."
    )


def test_advice_repeated_by_another_finding_of_b_is_still_open():
    a = run_of("a" * 16, best_ms=30.0, source="user", findings=("starves",))
    b = run_of("b" * 16, best_ms=20.0, source="user")
    other = replace(finding_of("hidden"), predicted_step_ms=15.0, predicted_speedup=1.3)
    answer = [setup_changes.rows(compare(side(a), side(replace(b, findings=found))))[0].b for found in ([], [other])]
    assert other.claims == "gain" and answer == ["no longer needed", "still advised"]


def test_a_loss_gone_from_the_profile_may_remain_in_a_longer_run():
    waits = (("other_compute", None, 10_000_000, None), ("idle", "data_wait", 40_000_000, None))
    a, b = run_of("a" * 16, ledger=waits, source="user"), run_of("b" * 16, ledger=waits[:1], best_ms=15.0, source="user")
    assert setup_changes._missing_part(compare(side(a), side(b)), "b") == "none in the profiled steps"
    assert setup_changes._missing_part(compare(side(a), side(run_of("c" * 16, ledger=waits[:1], source="user"))), "b") == "none"


def test_more_operations_of_a_larger_batch_count_as_samples():
    rate = Throughput("FLOP", 5e12, 1e14, Verdict("faster", "high", ""), (19.0, 20.9), Fraction(64))
    assert intervals.of_rate(rate) == ": 19.0 to 20.9\u00a0× the samples per second (95 % interval)"
    assert (
        "floating-point" in intervals.of_rate(replace(rate, batch=None))
        and intervals.of_rate(replace(rate, interval=None)) == ""
    )
    slower = Throughput("FLOP", 1e14, 5e12, Verdict("slower", "high", ""), (0.04, 0.0625))
    assert intervals.of_rates(slower, "before") == "takes 20\u00a0× as long as before for the same arithmetic"
    assert intervals.of_rate(slower) == ": 16.0 to 25.0\u00a0× as long (95 % interval)"


def test_unrelated_runs_have_no_change():
    a, b = (
        run_of(n * 16, best_ms=ms, source="user", metrics={"mfu": mfu}) for n, ms, mfu in (("a", 18.0, 0.2), ("b", 20.0, 0.3))
    )
    found = replace(compare(side(a), side(b)), other_model=True)
    assert {row.change for row in changes.metric_rows(found) if row.what in ("Step time", "MFU")} == {fmt.MISSING}
    unknown = replace(found, best=replace(found.best, a=None))
    assert words.headline(unknown).endswith(": no step time is known of A, 20.0\u00a0ms per step in B.")
    assert setup_changes.next_change(found) is None


def test_the_evidence_of_each_side_is_named_with_steps_and_workers():
    facts = UserFacts(loader_workers=14)
    a, b = (
        run_of("a" * 16, counted=5, best_ms=9.0, source="marks"),
        run_of("b" * 16, counted=1, best_ms=9.0, source="user", facts=facts),
    )
    found = compare(side(a), side(b))
    assert basis.bases(found) == (
        "A: step time from the run's own step marks, 5 profiled steps",
        "B: step time from the stopwatch, 1 profiled step, 14 loader workers",
    )
    assert basis.dots_title(found).endswith("; the run's steps take 9.00\u00a0ms in A and 9.00\u00a0ms in B")


def test_a_name_with_a_comma_does_not_split_the_headline():
    """The page cuts long headlines at a comma.

    A dropped file trace.json is called "trace, 21 Nov 05:59:43 UTC".
    """
    runs = [run_of(letter * 16, best_ms=10.0, source="user", facts=None) for letter in "ab"]
    named = [
        replace(run, manifest=msgspec.structs.replace(run.manifest, name=f"trace, {10 + i} Nov 05:59:43 UTC"))
        for i, run in enumerate(runs)
    ]
    found = compare(*(side(run) for run in named))
    assert " A " in f" {words.headline(found)} " and "trace" not in words.headline(found)
    assert words.called(found) == "A: trace, 10 Nov 05:59:43 UTC; B: trace, 11 Nov 05:59:43 UTC"
