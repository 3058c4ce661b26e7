"""Tests of where a step's time goes: work and waits sum to the step.

A wait in a few steps is not attributed to each step.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.derive.lost.uneven import UnevenWait, uneven_waits
from sawtooth.app.words.answer.step import answer_of
from tests.support.run_results import run_of

LEDGER = [
    ("other_compute", None, 6_000_000, 6.0),
    ("idle", "launch_bound", 5_000_000, 5.0),
    ("idle", "python_host", 7_000_000, 7.0),
]


def test_a_wait_of_one_step_in_five_is_not_presented_as_each_steps() -> None:
    uneven = uneven_waits([("python_host", 27.0), *[("python_host", 2.0)] * 4, *[("launch_bound", 5.0)] * 5], 5)
    assert uneven == {"python_host": UnevenWait(1, 5, 27.0, 2.0)}
    run = run_of(ledger=LEDGER)
    answer = answer_of(run, replace(run.lead, uneven=uneven))
    assert answer is not None
    assert answer.works_ms + answer.waits_ms == pytest.approx(answer.step_ms)
    assert answer.waits.replace("\xa0", " ").replace("\u2009", " ") == (
        "It waits 7.00 ms on average for Python on the host (27.0 ms in 1 of 5 steps, 2.00 ms in the others) and 5.00 ms for kernel launches."
    )


@pytest.mark.parametrize("ms", [[5.0, 6.0], [5.0, 6.0, 7.0], [1.0, 9.0, 9.0], []])
def test_waits_of_most_steps_or_of_too_few_steps_are_even(ms: list[float]) -> None:
    assert uneven_waits([("data_wait", item) for item in ms], max(len(ms), 2)) == {}


def test_a_nearly_busy_gpu_has_no_named_wait() -> None:
    run = run_of(ledger=[("other_compute", None, 990_000_000, 99.0), ("idle", "launch_latency", 10_000_000, 1.0)])
    answer = answer_of(run, run.lead)
    assert answer is not None and answer.waits == ""


def test_most_of_all_waits_is_named_with_the_rest_so_that_their_sum_is_explained() -> None:
    run = run_of(ledger=[*LEDGER, ("idle", "data_wait", 82_000_000, 82.0)])
    answer = answer_of(run, run.lead)
    assert answer is not None
    assert answer.main_wait.replace("\u2009", " ").replace("\xa0", " ") == ": data loader 82.0 ms, others 12.0 ms"
    for ledger in (LEDGER[:2], [*LEDGER, ("idle", "host_sync", 7_000_000, 7.0)]):  # one wait alone; three of about equal length
        run = run_of(ledger=ledger)
        answer = answer_of(run, run.lead)
        assert answer is not None and answer.main_wait == ""
