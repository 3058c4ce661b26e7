"""Tests of recompilation findings: the guards that failed, and the loss of a run with a timed step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from sawtooth.analysis.findings.rules import recompilation
from sawtooth.analysis.run.compile_log import CompileLog, CompileReason
from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.run_analysis import analyse
from sawtooth.ingest.manifest import UserFacts
from tests.support.findings_of import library, result_of

SIZE = CompileReason("model.py:12", "0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4", "", "0/1", 2)
FLAG = CompileReason("model.py:30", "1/0: self.scale == 0.5", "", "1/1", 3)


def _said(*reasons: CompileReason) -> tuple[str, str]:
    log = CompileLog((), reasons, 4, 2.0) if reasons else None
    context = cast(Any, SimpleNamespace(run=SimpleNamespace(compile_log=log)))
    fix, changes = recompilation._advice(context, "655 ms")
    return fix.sentence, " ".join(change.after for change in changes)


def test_the_advice_marks_changing_sizes_as_dynamic() -> None:
    fix, changes = _said(SIZE, FLAG)
    assert "2 of 5 recompilations in the log are for another size" in fix and "model.py:12" in fix and "saves 655 ms" in fix
    assert "mark_dynamic" in changes and "drop_last" in changes


def test_dynamic_shapes_are_not_advised_for_other_recompilations() -> None:
    fix, changes = _said(FLAG)
    assert "self.scale == 0.5" in fix and "dynamic" not in fix + changes
    assert "TORCH_LOGS=recompiles" in _said()[0]


def _with_stopwatch(ms: float) -> Finding:
    """Return a run in which one of the two profiled steps compiles for a second.

    The other step takes 20 ms, as does the replay without the compilation.
    """
    found = result_of("recompiles")
    run = analyse(msgspec.structs.replace(found.manifest, facts=UserFacts(step_time_ms=ms)), library())
    return next(f for f in run.findings if f.rule == "recompilation")


def test_a_run_that_compiles_less_often_than_its_profile_loses_at_most_its_step() -> None:
    found = _with_stopwatch(30)
    assert found.predicted_step_ms == pytest.approx(20.2, abs=0.5)
    assert found.predicted_low_ms == pytest.approx(0.85 * found.predicted_step_ms)
    assert found.predicted_high_ms == pytest.approx(1.15 * found.predicted_step_ms)
    assert found.ceiling_ms_per_step == pytest.approx(30 - 0.85 * found.predicted_step_ms)
    assert "the run loses at most 13.2 ms per step" in found.title


def test_a_run_as_fast_as_without_compiling_may_gain_nothing() -> None:
    found = _with_stopwatch(21)
    assert (found.predicted_step_ms, found.severity) == (None, "info") and "No gain is predicted" in found.prediction_note
