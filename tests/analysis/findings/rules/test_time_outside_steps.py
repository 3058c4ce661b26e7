"""Tests of findings about time that the profiled steps do not show, and about telemetry."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sawtooth.analysis.findings.rules import steps_not_marked
from sawtooth.app.words.headline import between_steps
from sawtooth.app.words.run import first_line
from tests.support.by_hand import ADDS, FLOAT, analysed, of_rule, sampled
from tests.support.chrome_trace import ChromeTrace, matmul_loop
from tests.support.findings_of import result_of
from tests.support.sampled_loop import HARDWARE_SLOWDOWN, SOFTWARE_HEAT


@pytest.mark.parametrize(("later_s", "words"), [(-120, "ends 1.9"), (90, "begins 1.5 minutes after"), (-30, None), (30, None)])
def test_telemetry_of_another_time_is_not_used(tmp_path: Path, later_s: int, words: str | None) -> None:
    # Six seconds of samples at 10 % belong to another run if they end 114.1 s before the trace or begin 90 s after it.
    result = sampled(tmp_path, later_s=later_s, util=10)
    assert result.lead is not None and result.lead.represents is not None
    notes = [d.sentence for d in result.diagnostics if d.key == "telemetry_elsewhere"]
    util = result.metrics["nvml_gpu_util_mean"]
    if words is None:
        assert (notes, util.trust, result.lead.represents.represents) == ([], "ok", False)
    else:
        assert words in notes[0] and (util.trust, util.notes[0]) == ("caution", notes[0])
        assert result.lead.represents.represents is None and result.lead.best.source != "telemetry"


@pytest.mark.parametrize("reason", [SOFTWARE_HEAT, HARDWARE_SLOWDOWN])
def test_clocks_throttled_by_heat_or_hardware_are_named(tmp_path: Path, reason: int) -> None:
    # 12 of 60 samples, one every 0.1 s: 1.2 s of the 5.9 s between the first and the last sample, 20 %.
    found = next(f for f in sampled(tmp_path, throttled=12, reason=reason).findings if f.rule == "thermal-slowdown")
    assert "lowered the clocks for 20 % of the sampled time at 1200 MHz" in found.title
    row = found.evidence[0]
    assert row["end_ns"] - row["start_ns"] == 1_200_000_000


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("name", "times", "below_it"),
    [
        ("pauses", 1.8, "Pauses between steps are not included in these times: 100 ms, 2 times in 250 steps (44 % of the run)."),
        ("pauses_to_save", 2.0, "Writing checkpoints is not included in these times: 100 ms every 100 steps (1.00 ms per step on average)."),
    ],
)  # fmt: skip
def test_cost_of_pauses_between_steps_refers_to_the_run(name: str, times: float, below_it: str) -> None:
    # The pauses take 100 ms twice in 250 steps of 1 ms. A checkpoint after steps 100 and 200 repeats every 100 steps. If the
    # period is unknown, only the observed pauses are reported.
    result = result_of(name)
    (stalls,) = (f for f in result.findings if f.rule == "periodic-stalls")
    assert (stalls.claims, stalls.ceiling_ms_per_step) == ("throughput", None)
    assert stalls.samples_per_second_times == pytest.approx(times, rel=0.01)
    step = result.metrics["best_step_time_ms"]
    assert (step.value, step.trust) == (pytest.approx(1.0, rel=0.01), "caution")
    # Timing steps leaves evaluations out, too.
    assert result_of("pauses_to_evaluate").metrics["best_step_time_ms"].trust == "ok"
    often = next(f for f in result_of("pauses_often_to_save").findings if f.rule == "periodic-stalls")
    # The step of 6 ms includes these pauses.
    assert (often.claims, often.ceiling_ms_per_step) == ("ceiling", pytest.approx(5.0, rel=0.01))
    assert (between_steps(result) or "").replace("\xa0", " ") == below_it
    with_them = f"including them, a step takes {'1.8 ms' if name == 'pauses' else '2 ms'} on average"
    assert with_them in step.notes[0].replace("\xa0", " ")


@pytest.mark.parametrize(
    ("name", "advised"), [("rounds", None), ("rounds_not_profiled", "Profile a whole round: at least 8 steps")]
)
def test_time_before_each_round_is_not_rare_if_the_profile_contains_it(name: str, advised: str | None) -> None:
    result = result_of(name)
    hidden = next((f for f in result.findings if f.rule == "profile-not-representative"), None)
    assert (hidden and hidden.fix[: len(advised or "")]) == advised
    assert hidden is None or "active=16" in hidden.changes[0].after
    assert "periodic-stalls" not in {f.rule for f in result.findings}
    assert (between_steps(result) or "").replace("\xa0", " ") == (
        "A round of 8 steps takes 16 ms: 8 ms in its steps and 8 ms before the first step (e.g. a rollout or an evaluation)."
    )


def test_time_outside_the_profiled_steps_has_one_likely_explanation(tmp_path: Path) -> None:
    # The host draws a tensor in each profiled step of 1 ms. By telemetry, steps take several ms, and nothing else explains this.
    loop = matmul_loop()
    for k in range(4):
        at = 1000 * k
        loop.op("aten::randint", at + 745, at + 860, [[]], ["Scalar"])
        loop.op("aten::copy_", at + 865, at + 990)
        loop.launch(
            (at + 870, at + 980), (at + 900, at + 960), "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", bytes=1_000_000
        )
        loop.host("cuda_runtime", "cudaStreamSynchronize", at + 981, at + 988)
    result = sampled(tmp_path, later_s=30, util=20, loop=loop)
    made = next(f for f in result.findings if f.rule == "tensors-made-on-cpu")
    assert "most likely" in made.title and made.confidence == "medium"
    assert not any(f.rule == "profile-not-representative" for f in result.findings)
    assert "Most likely it waits for tensors made on the CPU" in first_line(result)


@pytest.mark.parametrize(
    ("steps", "best", "findings"),
    [("annotation", "marks", 0), ("annotation", "estimate", 1), ("inferred", "marks", 0), ("none", "marks", 1)],
)
def test_a_run_with_step_marks_gets_no_advice_to_mark_steps(steps: str, best: str, findings: int) -> None:
    # If a graph holds the whole step, it marks each replay.
    rank = SimpleNamespace(
        trace=SimpleNamespace(by_nsight=False), step_source=steps, best=SimpleNamespace(source=best), counted=[1]
    )
    context = SimpleNamespace(rank=rank, recording=SimpleNamespace(named=lambda pattern: []))
    assert len(list(steps_not_marked.RULE.measure(context))) == findings  # type: ignore[arg-type]


@pytest.mark.parametrize("kernels", [True, False])
def test_slow_steps_with_more_gpu_work_are_not_slow_hosts(tmp_path: Path, kernels: bool) -> None:
    """Every fourth step takes 3 ms and the others 1 ms, so its 2 ms are 0.5 ms per step.

    The GPU works during the whole step, as in an optimizer step after four micro-batches, or it is idle in the additional 2 ms.
    """
    trace, at = ChromeTrace(), 0
    for k in range(13):
        long = 3_000 if k % 4 == 3 else 1_000
        trace.step(k, at, at + long)
        for start in range(at, at + long if kernels else at + 1_000, 1_000):
            trace.op("aten::add", start + 10, start + 30, [[64, 64], [64, 64]], FLOAT)
            trace.launch((start + 15, start + 20), (start + 40, start + 990), ADDS)
        if not kernels and long > 1_000:
            trace.launch((at + long - 30, at + long - 25), (at + long - 20, at + long - 10), ADDS)
        at += long
    found = of_rule(analysed(tmp_path, trace), "periodic-stalls")
    assert found is not None
    assert found.title.startswith(f"Some profiled steps {'have more GPU work' if kernels else 'are slow'}: 3 of 12 take up to")
    assert ("which kernels they add" in found.fix) == kernels
    assert (found.severity == "info") == kernels
