"""What telemetry's troughs are, and why three figures of activity differ, in words with the numbers in them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.run.model import Explains
from sawtooth.analysis.telemetry.troughs import Troughs
from sawtooth.app.words import telemetry as words
from tests.support.run_results import finding_of, run_of

STARVED = (("other_compute", None, 200, 0.0002), ("idle", "data_wait", 800, 0.0008))


def activities_of(nvml: float | None, busy: float | None, tensor: float | None = None) -> str | None:
    given = {"nvml_gpu_util_mean": nvml, "gpu_busy_share": busy, "tensor_active_measured": tensor}
    known = {key: Reading(value) for key, value in given.items() if value is not None}
    return words.activities({key: known.get(key) or missing("Not in this test.") for key in METRICS})


@pytest.mark.parametrize(
    ("busy", "word"), [(0.21, "about the same"), (0.50, "higher: it counts copies"), (0.10, "lower: profiling slows")]
)
def test_the_traces_busy_share_is_held_against_nvml(busy: float, word: str) -> None:
    text = activities_of(0.2, busy)
    assert text is not None
    assert word in text
    assert "20\u00a0%" in text


def test_tensor_activity_has_its_reason() -> None:
    text = activities_of(0.2, None, 0.029)
    assert text is not None
    assert "2.9\u00a0% of the time" in text
    assert "profiled" not in text


def test_without_nvml_nothing_is_compared() -> None:
    assert activities_of(None, 0.5, 0.1) is None


def test_troughs_under_the_profile_and_by_their_period() -> None:
    run = replace(run_of(ledger=STARVED), troughs=Troughs(4, 100, (("data_wait", 99), ("host_sync", 1)), 1))
    assert words.troughs(run) == (
        "Of the time lost in the 4 troughs under the profile, 99\u00a0% is waiting for the data loader. "
        "By its period a tooth takes as long as one step: each trough is one wait for the data loader's next batch."
    )


def test_several_steps_to_a_tooth_are_workers_that_finish_together_only_where_the_loader_is_to_blame() -> None:
    two = Troughs(steps=2, by_work=True)
    assert words.troughs(replace(run_of(), troughs=two)) == "By its period a tooth does the work of 2 steps."
    hidden = replace(finding_of("hidden-loader"), explains=Explains(("data_wait",), hidden=True))
    blamed = words.troughs(replace(run_of(), findings=[hidden], troughs=two))
    assert blamed is not None
    assert "next 2 batches, as when 2 workers finish together" in blamed


def test_a_tooth_and_a_step_of_two_times_say_where_each_is_from() -> None:
    run = run_of(ledger=STARVED)
    assert run.lead is not None
    lead = replace(run.lead, best=replace(run.lead.best, reading=Reading(773.0), source="telemetry"))
    tooth = SimpleNamespace(sawtooth=SimpleNamespace(period_s=0.752))
    apart = words.both_times(replace(lead, telemetry=tooth), 1)  # type: ignore[arg-type]
    assert apart == [
        "The rhythm of the samples gives 752\u00a0ms, the kernels' time over the mean utilization a step of 773\u00a0ms: two measurements of the same loop."
    ]
    tooth.sawtooth.period_s = 0.7731  # the same in three figures
    assert words.both_times(replace(lead, telemetry=tooth), 1) == []  # type: ignore[arg-type]


def test_nothing_is_said_of_troughs_that_nothing_explains() -> None:
    assert words.troughs(run_of()) is None
    assert words.troughs(replace(run_of(), troughs=Troughs())) is None
