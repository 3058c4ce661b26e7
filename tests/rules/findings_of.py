"""Findings of a committed recording, each read once in a test session."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

from analysis.recordings import Library
from analysis.results import analyse
from analysis.run_result import Finding, RunResult
from analysis.together import together_ms
from app.intake import bring_in
from ingest.schema import DataFolder

RECORDINGS = Path(__file__).parents[1] / "recordings"
BUNDLED = Path(__file__).parents[2] / "sample_traces"
NAMES = [f.name for root in (RECORDINGS, BUNDLED) for f in sorted(root.iterdir()) if any(f.glob("*trace.json.gz"))]
_DATA = tempfile.TemporaryDirectory(prefix="sawtooth-rules-")


@lru_cache(maxsize=1)
def library() -> Library:
    return Library(DataFolder(Path(_DATA.name)))


@cache
def result_of(name: str, telemetry: bool = True) -> RunResult:
    """Analyse the recording ``name`` of tests/recordings or sample_traces, with its telemetry."""
    folder = next(f for f in (RECORDINGS / name, BUNDLED / name) if f.is_dir())
    files = sorted(folder.glob("*trace.json.gz"))
    if telemetry:
        files += folder.glob("nvml.jsonl*")
    run = bring_in(library().folder, [(f, f.name) for f in files], name=name).runs[0]
    return analyse(run, library())


def finding(name: str, rule: str) -> Finding | None:
    """Return the finding of ``rule`` on the recording, None where it is quiet."""
    return next((f for f in result_of(name).findings if f.rule == rule), None)


def together(name: str, rules: Sequence[str]) -> float | None:
    """Return the step time in ms that the findings of ``rules`` predict together, None where one of them is missing or predicts nothing."""
    result = result_of(name)
    found = [f for f in result.findings if f.rule in rules and f.predicted_step_ms is not None]
    if result.lead is None or len(found) != len(rules):
        return None
    return found[0].predicted_step_ms if len(found) == 1 else together_ms(library(), result.lead, found)
