"""Tests of advice to run several accumulated micro-batches as one."""

from __future__ import annotations

import pytest

from sawtooth.analysis.findings.rules.accumulation_without_need import RULE
from sawtooth.analysis.replay.edits import WithoutOps
from tests.support.accumulation_loops import LAYERS
from tests.support.findings_of import context_of, finding, result_of

LAUNCHES = (
    4 * 2 * LAYERS + 3 * LAYERS
)  # Four passes in both directions, and the additions of three. The optimizer's launch stays.


def saved_share(name: str) -> float:
    found, lead = finding(name, RULE.slug), result_of(name).lead
    assert found is not None and lead is not None and lead.best.ms
    return found.gain_ms / lead.best.ms


def test_one_micro_batch_takes_the_launches_of_one_pass() -> None:
    """There are 66 launches and the optimizer's launch; 54 of them disappear.

    The host limits the step, and all launches take it equally long.
    """
    found = finding("accumulates_four_with_free_memory", RULE.slug)
    assert (
        found is not None
        and "4 micro-batches" in found.title
        and found.fix.startswith("Run one larger micro-batch instead of 4")
    )
    removed = {op for edit in found.edits if isinstance(edit, WithoutOps) for op in edit.ops}
    with context_of("accumulates_four_with_free_memory") as context:
        assert len(removed) == (LAUNCHES - 2 * LAYERS) * context.work_steps
    assert saved_share("accumulates_four_with_free_memory") == pytest.approx(54 / 67, rel=0.05)


def test_the_memory_in_use_limits_the_micro_batch() -> None:
    """With a third of the memory in use, a batch twice as large fits, and one four times as large may not.

    Two micro-batches keep 24 launches and the second one's 6 additions, so 36 of 67 launches disappear.
    """
    found = finding("accumulates_four_in_a_third_of_memory", RULE.slug)
    assert found is not None and found.fix.startswith("Run 2 larger micro-batches instead of 4")
    assert saved_share("accumulates_four_in_a_third_of_memory") == pytest.approx(36 / 67, rel=0.05)


def test_without_known_memory_the_advice_is_unsure() -> None:
    found = finding("accumulates_four", RULE.slug)
    assert found is not None and found.confidence == "low" and "not recorded" in found.risk


@pytest.mark.parametrize(
    "name",
    [
        "accumulates_four_in_most_memory",
        "accumulates_different_lengths",
        "accumulates_four_and_reduces_each",
        "trains_four_models",
        "updates_four_times",
        "one_micro_batch",
        "trained_above_twice",  # The same parameters have gradients from before the step in both passes.
    ],
)
def test_other_passes_of_a_step_are_no_needless_accumulation(name: str) -> None:
    assert finding(name, RULE.slug) is None
