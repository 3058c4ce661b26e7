"""Tests of the confidence in a change of the step time if both runs have the same command."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from sawtooth.analysis.compare.changed.setup_traits import Trait
from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import Side
from sawtooth.analysis.compare.significance.certainty import ONE_COMMAND
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.metrics.step_time_evidence import StepWork
from sawtooth.analysis.run.model import Explains
from tests.support.run_results import finding_of, run_of, side

BUSY_HOST = (45.0, 105.3)  # ms. The step times of one command on a shared host: the second run took 2.34 times as long.


def run(
    number: int,
    step_ms: float,
    gpu_ms: float | None,
    *,
    command: str = "train.py",
    advice: str = "",
    device: str = "NVIDIA H200",
):
    made = run_of(f"{number:016x}", best_ms=step_ms, source="user", device=device)
    work = StepWork(gpu_ms * 1e6, 0) if gpu_ms else None
    findings = (
        [replace(finding_of(advice), explains=Explains(topics=frozenset({"host_pace"} if advice == "launch-bound" else ())))]
        if advice
        else []
    )
    manifest = msgspec.structs.replace(made.manifest, command=["python", *command.split()])
    return replace(made, manifest=manifest, lead=replace(made.lead, work=work), findings=findings)


def of(*runs, dtype: str = "bf16") -> Side:
    steps = [(r.lead.best.ms, r.manifest.id) for r in runs]
    measured = tuple(MeasuredSteps((), ms, "user", (name,), low_ms=0.99 * ms, high_ms=1.01 * ms) for ms, name in steps)
    return replace(side(*runs), measured=measured, traits=(Trait("dtype", "Compute dtype", dtype),))


SHORT, LONG = BUSY_HOST
ONCE = of(run(1, SHORT, 20))


@pytest.mark.parametrize(
    ("a", "b", "confidence"),
    [
        pytest.param(ONCE, of(run(2, LONG, 20)), "low", id="nothing changed"),
        pytest.param(ONCE, of(run(2, LONG, 21.5)), "low", id="clocks vary"),
        pytest.param(of(run(1, SHORT, None)), of(run(2, LONG, None)), "low", id="on a CPU"),
        pytest.param(ONCE, of(run(2, LONG, None)), "low", id="the work of one side is not known"),
        pytest.param(ONCE, of(run(2, LONG, 20, advice="launch-bound")), "low", id="advice comes and goes with the host"),
        pytest.param(ONCE, of(run(2, LONG, 22)), "high", id="the GPU has other work"),
        pytest.param(ONCE, of(run(2, LONG, 20, device="NVIDIA A100")), "high", id="another GPU"),
        pytest.param(ONCE, of(run(2, LONG, 20, command="train.py --eager")), "high", id="another argument"),
        pytest.param(ONCE, of(run(2, LONG, 20), dtype="FP32"), "high", id="set up in another way"),
        pytest.param(of(*(run(i, SHORT + i, 20) for i in (1, 2, 3, 4))), of(*(run(i, LONG + i, 20) for i in (5, 6, 7, 8))), "high", id="runs that show how they vary"),
    ],
)  # fmt: skip
def test_confidence_of_a_change_needs_a_known_setup(a: Side, b: Side, confidence: str) -> None:
    for pair, word in (((b, a), "faster"), ((a, b), "slower")):
        stated = compare(*pair).verdict
        assert (stated.word, stated.confidence) == (word, confidence)
        assert (ONE_COMMAND in stated.why) == (confidence == "low")


def test_a_later_step_of_one_training_is_a_change() -> None:
    later = run(2, LONG, 20)
    later = replace(later, manifest=msgspec.structs.replace(later.manifest, settings={"step": "40000"}))
    assert compare(ONCE, of(later)).verdict.confidence == "high"


def test_advice_that_was_followed_is_a_change() -> None:
    assert compare(of(run(2, LONG, 20, advice="host-waits-for-gpu")), ONCE).verdict.confidence == "high"


def test_confidence_of_no_change_is_not_lowered() -> None:
    stated = compare(ONCE, of(run(2, SHORT, 20))).verdict
    assert (stated.word, stated.confidence) == ("no_difference_shown", "high")
    assert ONE_COMMAND not in stated.why
