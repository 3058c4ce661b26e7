"""Findings of committed or hand-made recordings, each read and analysed once per test run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sawtooth.analysis import result_cache
from sawtooth.analysis.combined_changes import combined_prediction
from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.run_analysis import whatif_of
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.common_folder import common_folder, one_process_at_a_time
from tests.support.paths import RECORDED_AFTER, RECORDINGS, SAMPLES
from tests.support.sampled_loop import HAND_MADE

NAMES = [f.name for root in (RECORDINGS, SAMPLES) for f in sorted(root.iterdir()) if any(f.glob("*trace.json.gz"))]


@cache
def library() -> Library:
    """Return the recordings that all tests of a run share.

    Only this module writes to them.
    """
    return Library(DataFolder(common_folder() / "recordings").create())


@cache
def result_of(name: str, root: Path | None = None) -> RunResult:
    """Analyse the recording ``name`` of ``root`` with its telemetry.

    If ``root`` is None, the recording is looked up in tests/recordings, tests/recordings_after, sample_traces and HAND_MADE.
    """
    with one_process_at_a_time(f"recording-{name}"):
        run = ingest_into_runs(library().folder, [(f, f.name) for f in _files(name, root)], name=name).runs[0]
        return result_cache.result_of(run, library())


def recording_of(trace: Path) -> str:
    """Ingest a trace with all its derived files, and return the id of its recording."""
    with one_process_at_a_time(f"recording-{trace.parent.name}"):
        recording = ingest_file(trace, library().folder).id
        ensure_derived(library().folder, recording)
    return recording


def _files(name: str, root: Path | None) -> list[Path]:
    if root is None and name in HAND_MADE:
        folder = common_folder() / "made" / name
        folder.mkdir(parents=True, exist_ok=True)
        return HAND_MADE[name](folder)
    roots = (RECORDINGS, RECORDED_AFTER, SAMPLES) if root is None else (root,)
    folder = next((place / name for place in roots if (place / name).is_dir()), None)
    if folder is None:
        places = ", ".join(place.name for place in roots)
        raise LookupError(
            f"no recording is called {name!r}: it is no folder of {places}, and no key of HAND_MADE (tests/support/sampled_loop.py)"
        )
    return [*sorted(folder.glob("*trace.json.gz")), *folder.glob("nvml.jsonl*")]


def finding(name: str, rule: str) -> Finding | None:
    """Return the finding of ``rule`` on the recording, or None if the rule reports nothing."""
    return next((f for f in result_of(name).findings if f.rule == rule), None)


@contextmanager
def context_of(name: str) -> Iterator[RuleContext]:
    """Yield the rule context of a recording, for the leading device of the run."""
    result = result_of(name)
    if result.lead is None:
        raise LookupError(f"{name} has no GPU work that a rule could look at")
    with open_rank(library(), result.lead) as view:
        whatif = whatif_of(view.recording, result.lead)
        yield RuleContext(result, result.lead, view.recording, result.lead.telemetry, whatif)


def stopwatch_ms(name: str) -> float:
    """Return the step time in ms that the stopwatch of a committed recording measured."""
    truth = next(path for root in (RECORDINGS, RECORDED_AFTER, SAMPLES) if (path := root / name / "truth.json").exists())
    return float(json.loads(truth.read_text(encoding="utf-8"))["step_s_pipelined"]) * 1e3


def predicted_together_ms(result: RunResult, rules: Sequence[str]) -> float | None:
    """Return the step time in ms that the findings of ``rules`` predict together.

    Returns None if one of the findings is missing or has no prediction.
    """
    found = [f for f in result.findings if f.rule in rules and f.predicted_step_ms is not None]
    if result.lead is None or len(found) != len(rules):
        return None
    if len(found) == 1:
        return found[0].predicted_step_ms
    forecast = combined_prediction(library(), result.lead, 1, found)
    return forecast.after_ms if forecast is not None else None
