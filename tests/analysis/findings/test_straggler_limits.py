"""Tests of the limits of a straggler's gain, next to other findings.

The gain is limited to what the rank alone loses. Observed losses come before estimated ones.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from sawtooth.analysis.findings.checking import all_rules, found_by
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.ordering import ordered_findings
from sawtooth.analysis.findings.rules.straggling_rank import NOT_TOGETHER, RULE, WAITS_DIFFER, WITHIN_ERROR
from sawtooth.analysis.findings.straggler_limits import LIMITED_NOTE, limit_straggler_gains
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.job import Communication, RankWaits, Straggler
from sawtooth.analysis.run.model import Explains, Finding
from tests.support.actions import act
from tests.support.run_results import run_of

LATE = Finding("straggling-rank", "warning", "Rank 1 is late", act("Feed it"), "medium", 4.0, 36.0, predicted_speedup=40 / 36,
               explains=Explains(topics=frozenset({"late_rank"})))  # fmt: skip
LOADER = Finding("data-loader-starves-gpu", "critical", "The GPU waits for the loader", act("Feed it"), "high", 12.0, 28.0, 26.0, 31.0, 40 / 28,
                 edits=(WithoutHostCause("data_wait"),), explains=Explains(("data_wait",)))  # fmt: skip
PACE = Finding("launch-bound", "critical", "The GPU waits for launches", act("Capture"), "medium", 20.0, 20.0, predicted_speedup=2.0,
               explains=Explains(("launch_bound",), topics=frozenset({"host_pace"})))  # fmt: skip
CASTS = Finding("casts", "critical", "Casts", act("Cast once"), "high", 9.0, 31.0, predicted_speedup=40 / 31)


class NoGaps:
    def frame(self, sql: str, parameters: object = None) -> pd.DataFrame:
        return pd.DataFrame(columns=["start_ns", "end_ns"])


def context(
    *, reason: str = "data_wait", gain_ms: float = 4.0, own_ms: float = 8.0, waited_ms: float = 9.0, other_waits_ms: float = 0.0
) -> RuleContext:
    """Return a job of two ranks with 40 ms a step, of which rank 1 loses 12 ms to its loader.

    In the recording rank 0 waits ``waited_ms`` for it.
    """
    run = run_of(ledger=[("idle", "data_wait", 12_000_000, 12.0), ("other_compute", None, 28_000_000, 28.0)], source="estimate")
    other = run_of("b" * 16, ledger=[("idle", "data_wait", 1_000_000, 1.0), ("exposed_comm", "comm_wait", 39_000_000, 39.0)])
    assert run.lead is not None and other.lead is not None
    waits = (
        RankWaits(0, 0, 0, 0.0, other_waits_ms, None, None),
        RankWaits(1, 1, 0, 0.0, waited_ms, None, None),
    )
    late = Straggler("rank", (1,), (1,), None, reason, None, own_ms, gain_ms)
    communication = Communication(pd.DataFrame(), waits, 0, (), (late,), 40.0)
    job = replace(run, ranks=[other.lead, run.lead], communication=communication)
    return RuleContext(job, run.lead, NoGaps())  # type: ignore[arg-type]


def test_gain_of_a_late_rank_is_limited_to_removing_its_delay() -> None:
    late, loader = limit_straggler_gains(context(), [LATE, LOADER])
    assert late is LATE
    assert (loader.severity, loader.predicted_step_ms, loader.gain_ms) == ("warning", 36.0, pytest.approx(4.0))
    assert (loader.predicted_low_ms, loader.predicted_high_ms, loader.edits) == (None, None, ())
    assert loader.prediction_note == LIMITED_NOTE.format(title=LATE.title)


def test_copies_of_the_late_rank_alone_are_one_finding_with_its_delay() -> None:
    causes = [("idle", "blocking_copy", 12_000_000, 12.0), ("other_compute", None, 28_000_000, 28.0)]
    copying = context(reason="blocking_copy")
    late = replace(copying.rank, ledger=run_of(ledger=causes).lead.ledger)  # type: ignore[union-attr]
    job = replace(copying.run, ranks=[copying.run.ranks[0], late])
    copies = Finding("pageable-copies", "warning", "Copies block the host", act("Pin it"), "high", 12.0, 37.0, 36.0, 38.0, 40 / 37,
                     edits=(WithoutHostCause("blocking_copy"),), explains=Explains(("blocking_copy",)))  # fmt: skip
    pace, one = limit_straggler_gains(RuleContext(job, late, NoGaps()), [LATE, copies, PACE])  # type: ignore[arg-type]
    assert pace is PACE
    assert (one.rule, one.predicted_step_ms, one.edits) == ("pageable-copies", 37.0, copies.edits), "a pinned copy remains"
    assert one.title == "Copies block the host; the other ranks wait for it"
    assert one.explains == Explains(("blocking_copy",), topics=frozenset({"late_rank"}))
    assert one.prediction_note.endswith("Rank 1 is late.")
    both = RuleContext(replace(job, ranks=[late, late]), late, NoGaps())  # type: ignore[arg-type]
    assert limit_straggler_gains(both, [LATE, copies]) == [LATE, copies], "its peer copies as much"


def test_losses_shared_by_peers_or_unrelated_to_the_delay_are_not_limited() -> None:
    run = context().run
    both = replace(context(), run=replace(run, ranks=[run.ranks[1], run.ranks[1]]))
    assert limit_straggler_gains(both, [LATE, LOADER]) == [LATE, LOADER]
    assert limit_straggler_gains(context(), [LATE, PACE, CASTS]) == [LATE, PACE, CASTS]
    assert limit_straggler_gains(context(reason="work"), [LATE, LOADER]) == [LATE, LOADER]
    assert limit_straggler_gains(context(), [LOADER]) == [LOADER], "nobody is late"


def test_a_late_rank_with_visible_waits_comes_before_host_speed() -> None:
    assert ordered_findings(context(), [PACE, CASTS, LATE], all_rules()) == [CASTS, LATE, PACE]
    assert ordered_findings(context(reason="python_host"), [PACE, LATE], all_rules()) == [PACE, LATE], "recording slows it, too"
    assert ordered_findings(context(other_waits_ms=9.0), [PACE, LATE], all_rules()) == [PACE, LATE], "they wait for each other"
    info = replace(LATE, severity="info", predicted_step_ms=None)
    assert ordered_findings(context(), [PACE, info], all_rules()) == [PACE, info], "only the profiler makes it late"


@pytest.mark.parametrize(
    ("measured", "severity"),
    [
        ({}, "critical"),  # 4 of 40 ms are gained, others wait for 9 ms, and 8 ms are its own: 20 %
        ({"gain_ms": 2.5}, "warning"),  # 6 % are gained, which is not a sixth
        ({"own_ms": 5.0}, "warning"),  # 12 %: the recording causes the additional waits
        ({"waited_ms": 5.0}, "warning"),
        ({"other_waits_ms": 9.0}, "warning"),
    ],
)
def test_severity_of_a_late_rank_follows_the_waits_of_others(measured: dict[str, float], severity: str) -> None:
    (found,) = found_by(RULE, context(**measured))  # type: ignore[arg-type]
    assert found.severity == severity


@pytest.mark.parametrize(
    ("of_other_ms", "said", "note"),
    [
        (1.1, "without it, all ranks take about the same time", WITHIN_ERROR),  # 2.8 % of 40 ms
        (1.3, "without it, the difference is not known", WAITS_DIFFER.format(difference="1.3 ms")),
        (None, "without it, the difference is not known", NOT_TOGETHER),
    ],
)
def test_ranks_with_equal_waits_in_the_joint_replay_are_equally_long(of_other_ms: float | None, said: str, note: str) -> None:
    late = context()
    assert late.run.communication is not None
    other, own_rank = late.run.communication.ranks
    waits = (replace(other, unprofiled_wait_ms=of_other_ms), replace(own_rank, unprofiled_wait_ms=0.0, late_ms=9.0))
    job = replace(late.run, communication=replace(late.run.communication, ranks=waits, stragglers=()))
    (found,) = found_by(RULE, RuleContext(job, late.rank, NoGaps()))  # type: ignore[arg-type]
    assert (found.severity, found.title.endswith(said), found.prediction_note) == ("info", True, note)
    marked = replace(late.rank, best=replace(late.rank.best, source="marks"))
    of_run = found_by(RULE, RuleContext(job, marked, NoGaps()))  # type: ignore[arg-type]
    assert len(of_run) == (of_other_ms is None), "else the ranks were compared at the run's own step"
    assert not any("sawtooth sample" in item.fix for item in of_run)
