"""Tests of the frequency of stalls in marked steps."""

from __future__ import annotations

import numpy as np
import pytest

from sawtooth.analysis.ranks.stragglers.marked_stalls import marked_stalls, share_in_words


@pytest.mark.parametrize("every", [2, 3, 4, 10])
def test_stalls_shorter_than_half_a_step_are_counted_despite_scatter(every: int) -> None:
    random = np.random.default_rng(1)
    steps_ms = random.normal(110.0, 9.0, 200)
    steps_ms[::every] += 60.0
    found = marked_stalls(steps_ms.tolist(), 60e6)
    assert found.share == pytest.approx(1 / every, abs=0.01)
    assert found.excess_ns == pytest.approx(60e6, rel=0.08)
    assert found.occur_as(60e6, 5)


def test_scatter_alone_has_no_stalls() -> None:
    steps_ms = np.random.default_rng(1).normal(110.0, 9.0, 200).tolist()
    assert not marked_stalls(steps_ms, 60e6).occur_as(60e6, 5)
    assert not marked_stalls((), 60e6).occur_as(60e6, 5)


@pytest.mark.parametrize(("share", "words"), [(0.247, "1 of 4"), (0.286, "2 of 7"), (0.5, "1 of 2"), (0.01, "1 of 100")])
def test_a_share_is_a_fraction_with_few_steps(share: float, words: str) -> None:
    assert share_in_words(share) == f"{words} steps"
