"""Tests of the text about telemetry's troughs, and about three different activity figures.

The text contains the numbers.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.run.model import Explains
from sawtooth.analysis.telemetry.troughs import Troughs
from sawtooth.app.words import telemetry as words
from tests.support.run_results import finding_of, run_of

STARVED = (("other_compute", None, 200, 0.0002), ("idle", "data_wait", 800, 0.0008))


def activities_of(means: dict[str, float], profiled: float | None, of_run: float | None) -> dict[str, tuple[str, str]]:
    reading = Reading(profiled) if profiled is not None else missing("Not in this test.")
    rows = words.activities(means, {"gpu_busy_share": reading}, of_run)
    return {name: (value.replace("\u00a0", " "), what) for name, value, what in rows}


@pytest.mark.parametrize(
    ("busy", "word"),
    [(0.21, "The busy share of the profiled steps."), (0.50, "more than by NVML"), (0.10, "less than by NVML")],
)
def test_each_activity_value_says_what_it_counts(busy: float, word: str) -> None:
    rows = activities_of({"util_pct": 20.0, "tensor_active_pct": 2.9}, busy, 0.18)
    assert {name: value for name, (value, _) in rows.items()} == {
        "GPU utilization (NVML)": "20 %",
        "Tensor pipe": "2.9 %",
        "GPU busy, the run's step": "18 %",
        "GPU busy, as profiled": f"{100 * busy:.0f} %",
    }
    assert word in rows["GPU busy, as profiled"][1]


def test_a_single_activity_value_needs_no_explanation() -> None:
    assert activities_of({"util_pct": 20.0}, None, None) == {}
    assert "GPU busy, as profiled" not in activities_of({"util_pct": 20.0}, 0.5, 0.5)  # The profile represents the run.


def test_troughs_under_the_profile_and_by_their_period() -> None:
    run = replace(run_of(ledger=STARVED), troughs=Troughs(4, (("data_wait", 99), ("host_sync", 1)), 1))
    assert words.troughs(run) == (
        "The profile covers the 4 low stretches: 99\u00a0% of the time lost in them is waiting for the data loader. "
        "One period is as long as one step: each low stretch is one wait for the data loader's next batch."
    )


def test_several_steps_per_period_are_explained_by_workers_only_for_a_slow_loader() -> None:
    two = Troughs(steps=2, by_work=True)
    assert words.troughs(replace(run_of(), troughs=two)) == "One period does the work of 2 steps."
    hidden = replace(finding_of("hidden-loader"), explains=Explains(("data_wait",), topics=frozenset({"hidden"})))
    blamed = words.troughs(replace(run_of(), findings=[hidden], troughs=two))
    assert blamed is not None
    assert "next 2 batches, as when 2 workers finish together" in blamed


def test_period_and_step_from_different_times_name_their_sources() -> None:
    run = run_of(ledger=STARVED)
    assert run.lead is not None
    lead = replace(run.lead, best=replace(run.lead.best, reading=Reading(773.0), source="telemetry"))
    tooth = SimpleNamespace(sawtooth=SimpleNamespace(period_s=0.752))
    separate = words.period_disagreement(replace(lead, telemetry=tooth), 1)  # type: ignore[arg-type]
    assert separate == ["The step is measured twice: 752\u00a0ms by the period, 773\u00a0ms by kernel time ÷ mean utilization."]
    tooth.sawtooth.period_s = 0.7731  # The same in three figures.
    assert words.period_disagreement(replace(lead, telemetry=tooth), 1) == []  # type: ignore[arg-type]


def test_unexplained_troughs_are_not_mentioned() -> None:
    assert words.troughs(run_of()) is None
    assert words.troughs(replace(run_of(), troughs=Troughs())) is None
