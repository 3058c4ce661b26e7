"""Findings and the rules that yield them.

A rule is one module of ``sawtooth.analysis.findings.rules``. Its docstring has the headings *What it checks*, *Why it costs time*, *What to do*, *When it
is wrong* and *References*; it holds ``RULE``, a ``Rule``. A rule whose data is missing is reported as not checked, never as fine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.launches import Launches
from sawtooth.analysis.findings.model import Source
from sawtooth.analysis.findings.source_lines import as_known, user_lines
from sawtooth.analysis.findings.work import step_work
from sawtooth.analysis.metrics.feeding import first_read_of, sample_cost
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.nulls import plain_rows
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.replay.whatif import Edge, WhatIf
from sawtooth.analysis.run.model import CodeChange, Confidence, Explains, Finding, RankResult, RunResult, Severity
from sawtooth.analysis.run.verdict import uses_estimate
from sawtooth.analysis.units import in_words

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

P = ParamSpec("P")
T = TypeVar("T")

CRITICAL_SHARE = 0.15  # a sixth of every step: nothing else should be done first
# So much even the least gain of the interval must be: a prediction that holds must not refute what was critical.
SUREST_SHARE = CRITICAL_SHARE / 2
# Times its low end: a prediction whose interval reaches further is no surer than medium, however sure its cause.
SURE_WITHIN = 1.5
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")  # worst first
WARNING_SHARE = 0.03  # below three percent a fix is lost in the noise of most measurements

MAY_BRING_NOTHING = "No gain is predicted: a step would then take between {low} and {high}, which may be no less than now."

_FRAMES = "SELECT DISTINCT python_call_id FROM gaps WHERE device = $device AND list_contains($causes, cause) AND python_call_id IS NOT NULL"
# Added up where they lie: a recording of five million GPU operations has twelve million gaps. Places are told apart by the ids of their names.
_PLACES = """
WITH user_lines AS (SELECT python_call_id, name_id FROM (SELECT unnest($frames::BIGINT[]) AS python_call_id, unnest($lines::VARCHAR[]) AS name) JOIN names USING (name)),
pieces AS (
    SELECT coalesce(u.name_id, o.name_id, c.name_id) AS name_id, g.call_id, g.start_ns, g.end_ns, g.evidence,
        g.end_ns - g.start_ns AS ns, row(g.end_ns - g.start_ns, -g.start_ns) AS largest_then_first
    FROM gaps g LEFT JOIN user_lines u USING (python_call_id) LEFT JOIN cpu_ops o USING (cpu_op_id) LEFT JOIN runtime_calls c USING (call_id)
    WHERE g.device = $device AND list_contains($causes, g.cause)),
places AS (
    SELECT name_id, count(DISTINCT call_id) AS calls, sum(ns)::BIGINT AS ns, arg_max(start_ns, largest_then_first) AS start_ns,
        arg_max(end_ns, largest_then_first) AS end_ns, arg_max(evidence, largest_then_first) AS evidence
    FROM pieces GROUP BY name_id)
SELECT coalesce(name, 'an unnamed place') AS place, calls / $steps AS calls_per_step, ns / 1e6 / $steps AS ms_per_step, start_ns, end_ns, evidence
FROM places LEFT JOIN names USING (name_id) ORDER BY ns DESC, place LIMIT $most"""


@dataclass(frozen=True)
class RuleContext:
    """What a rule may look at: the analysed run, its slowest rank, that rank's recording, and the what-if engine.

    ``whatif`` is None where the trace has no replay. ``telemetry`` is the run's telemetry summary, None without telemetry.
    """

    run: RunResult
    rank: RankResult
    recording: Recording
    telemetry: Any = None
    whatif: WhatIf | None = None
    _made: dict[tuple[Any, ...], Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, make: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Return ``make`` of this context and the arguments, made once for all rules. Nobody may change what comes."""
        key = (make, *arguments, *sorted(named.items()))
        if key not in self._made:
            self._made[key] = make(self, *arguments, **named)
        made: T = self._made[key]
        return made

    @cached_property
    def work(self) -> pd.DataFrame:
        """GPU operations of the counted steps; see ``sawtooth.analysis.findings.work.step_work``. Read once for all rules."""
        return step_work(self.recording, self.rank.device)

    @cached_property
    def launches(self) -> Launches:
        """Where on the host ``work`` was launched. Read once for all rules."""
        return Launches(self.recording, self.work["gpu_op_id"].to_numpy(np.int64))

    @property
    def work_steps(self) -> int:
        """The number of steps that ``work`` covers, at least 1."""
        return max(int(self.work["step"].nunique()), 1)

    @property
    def step_ms(self) -> float | None:
        """The run's best step time in ms."""
        return self.rank.best.ms

    @property
    def by_estimate(self) -> bool:
        """Whether the ledger's unprofiled column speaks for the run."""
        return uses_estimate(self.rank)

    def lost_ms(self, *causes: str, owner: str | None = None, of: RankResult | None = None) -> float:
        """Return the ms per step that ``of``, else this rank, loses to any of ``causes``, by the ledger column that speaks for the run."""
        estimate = self.by_estimate
        rows = [r for r in (of or self.rank).ledger if r.cause in causes and owner in (None, r.owner)]
        return sum((r.ms_per_step_unprofiled_est if estimate else r.ms_per_step) or 0.0 for r in rows)

    def share(self, ms: float) -> float:
        """Return ``ms`` as a share of the step, 0 where the step time is not known."""
        return ms / self.step_ms if self.step_ms else 0.0

    def predict_ms(self, edits: Sequence[Edit]) -> float | None:
        """Return the run's step time in ms with ``edits`` made; None where there is no replay."""
        return self.whatif.predict_ms(self.rank.best, edits) if self.whatif is not None else None

    def predict_range_ms(self, edits: Sequence[Edit]) -> tuple[float, float] | None:
        """Return the interval of ``predict_ms``; None where there is no replay."""
        return self.whatif.predict_range_ms(self.rank.best, edits) if self.whatif is not None else None

    def gap_evidence(self, *causes: str, limit: int = 5) -> list[dict[str, Any]]:
        """Return the largest gaps of ``causes`` as evidence rows that link to the timeline."""
        frame = self.recording.frame(
            "WITH longest AS (SELECT *, (end_ns - start_ns) / 1e6 AS ms FROM gaps WHERE device = ? AND list_contains(?, cause) "
            "ORDER BY ms DESC, start_ns LIMIT ?) "
            "SELECT g.start_ns, g.end_ns, g.ms, g.cause, g.phase, n.name AS operator, g.evidence "
            "FROM longest g LEFT JOIN cpu_ops o USING (cpu_op_id) LEFT JOIN names n ON n.name_id = o.name_id ORDER BY g.ms DESC, g.start_ns",
            [self.rank.device, list(causes), limit],
        )
        return plain_rows(frame)

    def places(self, *causes: str, limit: int = 10) -> list[dict[str, Any]]:
        """Return where the host was in gaps of ``causes``: place (the user's own source line, else operator, else call), calls_per_step,
        ms_per_step as recorded, and the largest gap of the place."""
        steps = max(len(self.rank.counted), 1)
        of = {"device": self.rank.device, "causes": list(causes)}
        lines = user_lines(self.recording, [call for (call,) in self.recording.rows(_FRAMES, of)])
        parameters = of | {"frames": list(lines), "lines": list(lines.values()), "steps": steps, "most": limit}
        rows = plain_rows(self.recording.frame(_PLACES, parameters))
        if not lines:
            return rows
        known = as_known(self.recording, [row["place"] for row in rows])
        return [row | {"place": place} for row, place in zip(rows, known, strict=True)]

    def finding(
        self,
        rule: str,
        title: str,
        fix: str,
        *,
        ceiling_ms: float | None,
        edits: Sequence[Edit] = (),
        confidence: Confidence = "medium",
        severity: Severity | None = None,
        note: str = "",
        risk: str = "",
        changes: tuple[CodeChange, ...] = (),
        evidence: Iterable[dict[str, Any]] = (),
        places: tuple[tuple[int, int], ...] = (),
        predicted_ms: float | None = None,
        ends_the_run: bool = False,
        samples_per_second_times: float | None = None,
    ) -> Finding:
        """Build a finding: predicts ``edits`` by replay (unless ``predicted_ms`` is known otherwise), and takes the severity from the share
        of the step where none is given: critical only what gains SUREST_SHARE at least. A prediction whose interval holds the step as it is is not
        made, and one without an interval, or with a wide one, is no surer than medium."""
        predicted, between = predicted_ms, None
        if edits and predicted is None:
            predicted, between = self.predict_ms(edits), self.predict_range_ms(edits)
        fed_every_ms = self._fed_every_ms(edits, predicted, "likely")
        if between is not None and self.step_ms and between[1] >= self.step_ms:
            note = " ".join(filter(None, (note, MAY_BRING_NOTHING.format(low=in_words(between[0]), high=in_words(between[1])))))
            most_ms = max(self.step_ms - between[0], 0.0)  # no more than the note's shorter end
            cut = ceiling_ms is not None and ceiling_ms > most_ms
            fed_every_ms = self._fed_every_ms(edits, between[0], "least") if cut else None
            # By a loader whose pace is not known well enough: what is likely counts.
            counts = fed_every_ms is not None and self.share(self.step_ms - (predicted or 0.0)) >= WARNING_SHARE
            severity = "warning" if counts else "info"
            ceiling_ms = min(ceiling_ms, most_ms) if ceiling_ms is not None else None
            predicted, between = None, None
        gain = self.step_ms - predicted if predicted is not None and self.step_ms else ceiling_ms or 0.0
        if ceiling_ms is not None and self.step_ms:
            # What is lost as recorded may be less than what the run gains, never more than its step.
            ceiling_ms = min(max(ceiling_ms, gain), self.step_ms)
        low, high = self._of_another_run(edits, between)
        return Finding(
            rule=rule,
            severity=self._sure_enough(severity or severity_of(self.share(max(gain, 0.0))), between),
            title=title,
            fix=fix,
            confidence=as_sure_as_its_interval(confidence, predicted, low, high),
            ceiling_ms_per_step=ceiling_ms,
            predicted_step_ms=predicted,
            predicted_low_ms=low,
            predicted_high_ms=high,
            predicted_speedup=self.step_ms / predicted if predicted and self.step_ms else None,
            prediction_note=note,
            risk=risk,
            changes=changes,
            evidence=tuple(evidence),
            places=places,
            edits=tuple(edits),
            ends_the_run=ends_the_run,
            samples_per_second_times=samples_per_second_times,
            fed_every_ms=fed_every_ms,
        )

    def _fed_every_ms(self, edits: Sequence[Edit], step_ms: float | None, edge: Edge) -> float | None:
        """Return how often the loader gives a batch, ms, where that is why a step with ``edits`` made takes ``step_ms``, at the least or likely."""
        if self.whatif is None or not edits or step_ms is None:
            return None
        return self.whatif.fed_every_ms(self.rank.best, edits, step_ms, edge)

    def _of_another_run(self, edits: Sequence[Edit], between: tuple[float, float] | None) -> tuple[float | None, float | None]:
        if between is None or self.whatif is None:
            return None, None
        return self.whatif.of_another_run(self.rank.best, edits, between) or (None, None)

    def _sure_enough(self, severity: Severity, between: tuple[float, float] | None) -> Severity:
        """Return a severity that the interval of the prediction bears out."""
        unsure = between is not None and self.step_ms and self.share(self.step_ms - between[1]) < SUREST_SHARE
        return "warning" if severity == "critical" and unsure else severity


def once(make: Callable[Concatenate[RuleContext, P], T]) -> Callable[Concatenate[RuleContext, P], T]:
    """Ask a recording once for all rules; see ``RuleContext.once``."""

    @wraps(make)
    def made(context: RuleContext, *arguments: P.args, **named: P.kwargs) -> T:
        return context.once(make, *arguments, **named)

    return made


@dataclass(frozen=True)
class Rule:
    """A rule: its slug (the name of its file), what data it needs (keys of NEEDS), its check, and which lost time its findings account for.

    ``of_the_host`` checks a run without GPU work; most rules have nothing to say of one. ``reads`` is the evidence that its findings rest on: they
    are worth no more than the least certain of it.
    """

    slug: str
    needs: tuple[str, ...]
    check: Callable[[RuleContext], Iterable[Finding]]
    explains: Explains
    of_the_host: Callable[[RunResult], Iterable[Finding]] | None = None
    reads: frozenset[Source] = frozenset()


NO_HOST = "the telemetry has no samples of the host: record it with a newer `sawtooth sample`"

# What a rule can need: how to tell that it is there, and the sentence for when it is not.
NEEDS: dict[str, tuple[Callable[[RuleContext], bool], str]] = {
    "steps": (
        lambda g: len(g.rank.counted) > 0,
        "the trace has no steps: call `profiler.step()` after each step, or put an NVTX range around it under Nsight Systems",
    ),
    "shapes": (lambda g: bool(g.rank.trace.record_shapes), "the trace has no shapes (`record_shapes=True`)"),
    "stacks": (lambda g: bool(g.rank.trace.with_stack), "the trace has no Python calls (`with_stack=True`)"),
    "memory": (lambda g: bool(g.rank.trace.profile_memory), "the trace has no allocations (`profile_memory=True`)"),
    "telemetry": (lambda g: g.telemetry is not None, "no telemetry is attached to the run (`sawtooth sample`)"),
    "host": (lambda g: g.run.telemetry.host is not None, NO_HOST),
    "host or loader": (lambda g: g.run.telemetry.host is not None or sample_cost(g.run.manifest.facts) is not None, NO_HOST),
    "reads": (
        lambda g: first_read_of(g.run.manifest.facts) is not None,
        "nothing counted what the loader reads from the disk and what from memory: `sawtooth run` and the capture helper do, on Linux",
    ),
    "ranks": (
        lambda g: len({r.rank for r in g.run.ranks}) > 1,
        "the run holds one rank; ingest the traces of all ranks together",
    ),
    "run's step": (
        lambda g: g.telemetry is not None or STEP_SOURCES[g.rank.best.source].timed,
        "only the profiled steps tell how long a step is: no telemetry (`sawtooth sample`), no step marks, no stopwatch",
    ),
    "gpu": (lambda g: g.rank.gpu is not None, "the GPU is not in the hardware table"),
}


def severity_of(share: float) -> Severity:
    """Return the severity of something that costs ``share`` of a step."""
    return "critical" if share >= CRITICAL_SHARE else "warning" if share >= WARNING_SHARE else "info"


def as_sure_as_its_interval(
    confidence: Confidence, predicted_ms: float | None, low_ms: float | None, high_ms: float | None
) -> Confidence:
    """Return the confidence in a finding whose cause alone would have ``confidence``: high needs a narrow interval, where a step is predicted."""
    if confidence != "high" or predicted_ms is None:
        return confidence
    narrow = low_ms is not None and high_ms is not None and high_ms <= SURE_WITHIN * low_ms
    return "high" if narrow else "medium"
