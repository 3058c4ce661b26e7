"""Compute the answers of the MCP tools from one data folder. The protocol is elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.findings.recorded.source_lines import heaviest_function, user_stack
from sawtooth.analysis.knowledge.frames import readable_frame
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.report import finding_json
from sawtooth.analysis.run.view import causes_of
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.sql import run_query
from sawtooth.app import format as fmt
from sawtooth.app.agent import answers
from sawtooth.app.agent.what_if import Changes, WhatIfPrediction, predict
from sawtooth.app.page.reference import rules
from sawtooth.app.runs.card import stored_card
from sawtooth.app.runs.listing import listed
from sawtooth.app.words.advice import numbered
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.manifest import Manifest

MAX_LINES = 8  # An explanation shows at most this many source lines.
MAX_EVIDENCE = 20  # Rows of evidence in an answer. An agent reads all of them, so they are few.
MAX_STACKS = 20  # Events of a finding whose Python stacks are read.


@dataclass(frozen=True)
class Tools:
    """The functions that compute the tools' answers from ``library``."""

    library: Library

    def run(self, text: str) -> Manifest:
        """Return the run with this id or name; raises NotFoundError if there is none."""
        return self.library.folder.resolve_run(text)

    def result(self, text: str) -> RunResult:
        """Return the analysis of the run with this id or name."""
        return result_of(self.run(text), self.library)

    def list_runs(self, search: str, limit: int) -> answers.RunList:
        """Return the newest runs whose name or tags contain ``search``."""
        runs = [
            run
            for run in listed(self.library.folder.manifests())
            if not search or any(search.lower() in text.lower() for text in (run.name, *run.tags))
        ]
        return answers.RunList([self.listed_run(run) for run in runs[:limit]], len(runs))

    def listed_run(self, run: Manifest) -> answers.ListedRun:
        """Return an entry of the list, without starting an analysis."""
        card = stored_card(run, self.library.folder)
        step = card.readings.get("best_step_time_ms") if card is not None else None
        return answers.ListedRun(
            id=run.id,
            name=fmt.clean(run.name, answers.NAME_LENGTH),
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.created_ns / 1e9)),
            tags=[fmt.clean(tag) for tag in run.tags],
            traces=len(run.traces),
            telemetry=len(run.telemetry),
            step_ms=step.value if step is not None else None,
            headline=(card.headline or card.problem or "") if card is not None else "not analysed yet: call report",
        )

    def compare(self, before: str, after: str) -> answers.RunComparison:
        """Return ``after`` compared with ``before``."""
        sides = [side_of([self.result(text)], self.library) for text in (before, after)]
        return answers.comparison_of(compare(*sides))

    def what_if(self, run: str, changes: Changes) -> WhatIfPrediction:
        """Return the predicted step time of the run with ``changes``."""
        return predict(self.result(run), changes, self.library)

    def query(self, run: str, sql: str, rank: int | None, limit: int) -> answers.Rows:
        """Return the first ``limit`` rows of a read-only statement."""
        result = self.result(run)
        recording_id = self._recording(result, rank)
        causes = causes_of([rank_result for rank_result in result.ranks if rank_result.recording_id == recording_id])
        answer = run_query(self.library.folder, recording_id, sql, causes=causes)
        rows = answer.rows.head(limit)
        return answers.Rows(
            [str(name) for name in rows.columns],
            [[_json_value(value) for value in row] for row in rows.itertuples(index=False, name=None)],
            answer.more or len(answer.rows) > limit,
        )

    def _recording(self, result: RunResult, rank: int | None) -> str:
        """Return the id of the recording of ``rank``.

        Without a ``rank``, return the lead rank's recording, or the first one if there is no lead.
        """
        recordings = result.manifest.recordings
        if rank is not None:
            recording_id = next((trace.id for trace in result.manifest.traces if trace.rank == rank), None)
            if recording_id is None:
                ranks = ", ".join(str(trace.rank) for trace in result.manifest.traces if trace.rank is not None)
                raise NotFoundError(f"This run has no trace of rank {rank}. It has: {ranks or 'one trace without a rank'}.")
            return recording_id
        if result.lead is not None:
            return result.lead.recording_id
        if not recordings:
            raise UsageError("This run has no recording to query.")
        return (result.manifest.traces or recordings)[0].id

    def explain(self, run: str, finding: str) -> answers.Explanation:
        """Return a finding in full; raises NotFoundError if the run has no such finding."""
        result = self.result(run)
        by_slug = {advised.rule: (number, advised) for number, advised in numbered(result)}
        if finding not in by_slug:
            why = next(
                (rule_not_checked.because for rule_not_checked in result.not_checked if rule_not_checked.rule == finding), None
            )
            missing = f" It was not checked: {why}" if why else f" It has: {', '.join(by_slug) or 'none'}."
            raise NotFoundError(f"This run has no finding {finding[:80]!r}.{missing}")
        number, check = by_slug[finding]
        plain = finding_json(check)
        about = next((rule for rule in rules() if rule.slug.replace("-", "_") == finding.replace("-", "_")), None)
        return answers.Explanation(
            finding=answers.finding_answer(number, check),
            how=check.fix,
            prediction_note=" ".join(filter(None, (check.observed, check.prediction_note))),
            risk=check.risk,
            changes=[{k: str(v) for k, v in change.items()} for change in plain["changes"]],
            evidence=[{k: _json_value(v) for k, v in row.items()} for row in plain["evidence"][:MAX_EVIDENCE]],
            source_lines=self._source_lines(result, check),
            needs_first=list(check.needs_first),
            about_the_rule=dict(about.sections) if about is not None else {},
        )

    def _source_lines(self, result: RunResult, finding: Finding) -> list[str]:
        """Return the user's innermost code line at each of the finding's events, most frequent first."""
        lead = result.lead
        if lead is None:
            return []
        starts = [start for start, _ in finding.spans] or [row["start_ns"] for row in finding.evidence if row.get("start_ns")]
        with self.library.open(lead.recording_id) as recording:
            lines = [user_stack(recording, lead.device, int(start))[-1:] for start in starts[:MAX_STACKS]]
            ordered = _most_frequent(line for stack in lines for line in stack)
            if not ordered and finding.explains.causes:
                heaviest = heaviest_function(recording, lead.device, *finding.explains.causes)
                return [heaviest] if heaviest else []
        return [readable_frame(line) for line in ordered[:MAX_LINES]]


def _most_frequent(lines: Iterable[str]) -> list[str]:
    counts: dict[str, int] = {}
    for line in lines:
        counts[line] = counts.get(line, 0) + 1
    return sorted(counts, key=lambda line: -counts[line])


def _json_value(value: Any) -> Any:
    """Return a value for JSON; missing values and numbers that are not finite become null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _json_value(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(element) for element in value]
    item = getattr(value, "item", None)
    if item is not None:
        return _json_value(item())
    return None if str(value) == "<NA>" else str(value)
