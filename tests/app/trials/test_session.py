"""Tests of a session of trials: kept changes, combinations, failures and predictions.

The runs are invented.
"""

import contextlib
import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.app.commands import try_ as command
from sawtooth.app.trials import endings, table
from sawtooth.app.trials import session as sessions
from sawtooth.app.trials.choosing import Candidate
from sawtooth.app.trials.running import FinishedRun, RunRequest
from sawtooth.app.trials.session import Options, TrialSession
from sawtooth.ingest.schema import DataFolder

FUSED = Candidate("fused-optimizer", {"kind": "AdamW"}, "optimizer-not-fused", 80.0, 75.0, 90.0)
FOREACH = Candidate("foreach-optimizer", {"kind": "AdamW"})
WORKERS = Candidate("loader-workers", {"workers": 4}, "data-loader-starves-gpu", 40.0, 30.0, 45.0)
FROZEN = Candidate("gc-frozen")
STEPS_MS = {"base": 100.0, "fused-optimizer": 82.0, "foreach-optimizer": 70.0, "loader-workers": 60.0, "gc-frozen": 101.0}


def finished(how: str = "measured", **more: Any) -> FinishedRun:
    about: dict[str, Any] = {
        "bundle": Path("run"),
        "notes": [],
        "step_times_ms": [],
        "start_s": 1.0,
        "memory_mib": 0.0,
        "seconds": 1.0,
    }
    return FinishedRun(how, **(about | more))  # type: ignore[arg-type]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrialSession]:
    """Yield a session with the step times of STEPS_MS.

    Relative step times of changes together are multiplied.
    """
    monkeypatch.chdir(tmp_path)
    orders: list[RunRequest] = []

    def run(order: RunRequest) -> FinishedRun:
        orders.append(order)
        return finished(
            notes=[{"proofs": dict.fromkeys(order.settings.changes, "It is."), "refused": {}, "errors": [], "losses": []}]
        )

    def measured(*_: Any) -> tuple[Any, MeasuredSteps, str]:
        ms = 100.0
        for slug in orders[-1].settings.changes or ["base"]:
            ms *= STEPS_MS[slug] / 100
        return (
            SimpleNamespace(findings=[], lead=None),
            MeasuredSteps((), ms, "marks", (str(len(orders)),), low_ms=ms * 0.99, high_ms=ms * 1.01),
            str(len(orders)),
        )

    monkeypatch.setattr(sessions, "run", run)
    monkeypatch.setattr(sessions, "measured_run", measured)
    with TrialSession(["train.py"], DataFolder(tmp_path / "data"), Options(), lambda _: None) as one:
        yield one


def tried(session: TrialSession, *changes: Candidate) -> dict[str, dict[str, Any]]:
    session.base(first=True)
    command._run_trials(session, changes, SimpleNamespace(allow_writes=True))  # type: ignore[arg-type]
    session.decide()
    session.remember()
    return {trial["change"]: trial for trial in table.plain(session)["trials"]}


def test_costs_are_counted_beyond_the_base_runs_that_were_not_profiled(
    session: TrialSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, of_base = sessions.run, iter((900.0, 300.0, 360.0))
    of_change = {"gc-frozen": 310.0, "loader-workers": 400.0}

    def run(order: RunRequest) -> FinishedRun:
        changes = "".join(order.settings.changes)
        return replace(plain(order), memory_mib=of_change[changes] if changes else next(of_base))

    monkeypatch.setattr(sessions, "run", run)
    trials = tried(session, FROZEN, WORKERS)
    assert [trials[slug]["memory_mib"] for slug in ("gc-frozen", "loader-workers")] == [0.0, 400.0 - 330.0]


def test_kept_changes_are_tried_together_without_conflicting_ones(session: TrialSession) -> None:
    trials = tried(session, FUSED, WORKERS, FROZEN, FOREACH)
    assert {slug: trial["status"] for slug, trial in trials.items()} == {
        "fused-optimizer": "kept",
        "loader-workers": "kept",
        "gc-frozen": "not_shown",
        "foreach-optimizer": "kept",
        "loader-workers+foreach-optimizer": "kept",
    }
    assert trials["loader-workers+foreach-optimizer"]["measured_step_ms"] == pytest.approx(42.0)
    assert table.plain(session)["base"]["step_ms"] == 100.0 and len(session.bases) == 6


def test_changes_together_that_are_no_faster_than_one_of_them_say_so(session: TrialSession) -> None:
    tried(session, WORKERS, FUSED)  # 60 ms · 82 % = 49.2 ms
    assert not [line for line in table.lines(session) if "alone" in line]
    session.trials[-1].measured_ms = 60.0
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in table.lines(session)]
    together = "A step takes 60.0 ms instead of 100 ms. loader-workers alone is as fast (60.0 ms)."
    assert f"loader-workers+fused-optimizer: {together}" in lines


def test_predictions_are_compared_with_measurements(session: TrialSession) -> None:
    trials = tried(session, FUSED, WORKERS, FROZEN)
    names = ("predicted_step_ms", "predicted_low_ms", "predicted_high_ms", "measured_step_ms", "inside")
    assert [trials["fused-optimizer"][name] for name in names] == [80.0, 75.0, 90.0, 82.0, True]
    assert [trials["loader-workers"][name] for name in names] == [40.0, 30.0, 45.0, 60.0, False]
    assert trials["gc-frozen"]["inside"] is None
    text = [line.replace("\N{NO-BREAK SPACE}", " ") for line in table.lines(session)]
    row = next(line for line in text if line.startswith("loader-workers "))
    assert row.split("  ")[0] == "loader-workers" and "40.0 ms (30.0 ms to 45.0 ms)  60.0 ms (59.4 ms to 60.6 ms)  no " in row
    assert "  DataLoader(…, num_workers=4)" in text and "loader-workers: A step takes 60.0 ms instead of 100 ms." in text


@pytest.mark.parametrize(
    ("seconds", "step_ms", "duration"),
    [
        # A run starts in 1 s and is analysed in 2 s. It trains for 5 s to 60 s. Two trials, each with a base run after it, and perhaps both together.
        (
            60.0,
            100.0,
            "4 to 6 runs of 8.00 s to 63.0 s: 32.0 s to 6.30 min in all, plus evaluations, compiling and trials that hang.",
        ),
        # 20 steps of 1.5 s take longer than 8 s, and 40 even longer.
        (
            8.0,
            1500.0,
            "4 to 6 runs of 33.0 s: 2.20 min to 3.30 min in all, plus evaluations, compiling and trials that hang.",
        ),
    ],
)
def test_the_plan_says_how_long_it_takes(seconds: float, step_ms: float, duration: str, session: TrialSession) -> None:
    session.options = replace(session.options, seconds=seconds)
    session.base(first=True)
    first = session.bases[0]
    session.bases = [replace(first, measured=replace(first.measured, best_ms=step_ms), analysis_s=2.0)]
    planned = table.planned([FUSED, Candidate("compile")], session)
    assert planned[-1].replace("\N{NO-BREAK SPACE}", " ") == duration
    assert table.planned([FUSED, FOREACH], session)[-1].startswith("4 runs of "), "they replace each other"


@pytest.mark.parametrize(
    ("end", "status", "why"),
    [
        ({"ending": "hung", "why": "No step ended within 60 s."}, "failed", "No step ended within 60 s."),
        ({"ending": "failed", "why": "ValueError"}, "failed", "ValueError"),
        ({"ending": "out_of_memory", "why": "OutOfMemoryError"}, "out_of_memory", "OutOfMemoryError"),
        (
            {"ending": "guarded", "files": [{"path": "last.pt"}]},
            "failed",
            "The trial was ended before it changed last.pt.",
        ),
        ({"notes": []}, "no_effect", "There is no proof that gc-frozen took effect."),
        ({"notes": [{"proofs": {"gc-frozen": "."}, "refused": {}, "errors": []}], "bundle": None}, "failed", endings.NO_STEP),
        ({"notes": [{"proofs": {}, "refused": {"gc-frozen": "It is frozen."}, "errors": []}]}, "no_effect", "It is frozen."),
    ],
)
def test_a_failed_trial_does_not_end_the_others(
    end: dict[str, Any], status: str, why: str, session: TrialSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = sessions.run
    monkeypatch.setattr(
        sessions, "run", lambda order: replace(good(order), **end) if "gc-frozen" in order.settings.changes else good(order)
    )
    trials = tried(session, FROZEN, FUSED)
    assert (trials["gc-frozen"]["status"], trials["gc-frozen"]["why"]) == (status, why)
    assert trials["fused-optimizer"]["status"] == "kept"


def test_a_run_whose_port_is_taken_is_repeated_once(session: TrialSession, monkeypatch: pytest.MonkeyPatch) -> None:
    good = sessions.run
    waits: list[int] = []
    monkeypatch.setattr(sessions, "wait_for_closed_connections", lambda: waits.append(1))

    def run(order: RunRequest) -> FinishedRun:
        taken = {"fused-optimizer": not waits, "gc-frozen": True}.get("".join(order.settings.changes), False)
        failed = {"ending": "failed", "why": "OSError", "tail": "OSError: [Errno 98] Address already in use"} if taken else {}
        return replace(good(order), **failed)

    monkeypatch.setattr(sessions, "run", run)
    trials = tried(session, FUSED, FROZEN)
    assert trials["fused-optimizer"]["status"] == "kept" and trials["gc-frozen"]["status"] == "failed"
    assert len(waits) == 2


def test_a_repeat_of_the_base_run_that_hangs_is_reported(session: TrialSession, monkeypatch: pytest.MonkeyPatch) -> None:
    good = sessions.run
    answer: list[str] = []
    ends = iter(({}, {"ending": "hung", "bundle": None, "why": "The first step did not end within 2 min."}))
    monkeypatch.setattr(sessions, "run", lambda order: replace(good(order), **({} if order.settings.changes else next(ends))))
    monkeypatch.setattr(session, "_say", answer.append)
    trials = tried(session, FUSED)
    assert trials["fused-optimizer"]["status"] == "kept" and len(session.bases) == 1
    assert answer[2:] == ["3. base 2", sessions.NO_REPEAT.format(why="The first step did not end within 2 min.")]


def test_a_command_without_steps_says_so(session: TrialSession) -> None:
    arguments = command.try_parser().parse_args(["train.py"])
    assert command._refusal(session, finished("ended", bundle=None), arguments) == command.NO_BASE.format(why=endings.NO_STEP)
    hidden = finished("ended", bundle=None, tail="Traceback …\nModuleNotFoundError: No module named 'torch'\n\n")
    assert hidden.why_unmeasured.endswith("The last line of its output is: ModuleNotFoundError: No module named 'torch'")
    few = command._refusal(session, finished("ended", step_times_ms=[1000.0] * 9), arguments) or ""
    assert "Only 9 training steps can be measured, and about 20 are needed. Use a larger --seconds" in few
    failed = finished("failed", bundle=None, why="The training ended with exit code 1: ValueError")
    assert "exit code 1: ValueError" in (command._refusal(session, failed, arguments) or "")


def test_one_rank_without_proof_means_no_effect(session: TrialSession, monkeypatch: pytest.MonkeyPatch) -> None:
    good = sessions.run
    silent = {"proofs": {}, "refused": {}, "errors": []}
    monkeypatch.setattr(sessions, "run", lambda order: replace(good(order), notes=[*good(order).notes, silent]))
    assert tried(session, FUSED)["fused-optimizer"]["status"] == "no_effect"


def test_ctrl_c_during_analysis_keeps_earlier_results(
    session: TrialSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise RuntimeError("Query interrupted")  # DuckDB raises this error.

    monkeypatch.setattr(sessions, "measured_run", interrupted)
    arguments = command.try_parser().parse_args(["--json", "--yes", "train.py"])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        assert command._try(["train.py"], arguments) == 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    out = capsys.readouterr()
    assert json.loads(out.out)["trials"] == [] and "Stopped. This is what is known:" in out.err
