"""Tests of the search in Reference, over all of its tabs."""

from __future__ import annotations

import pytest

from sawtooth.app.page.reference import found_in


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((3, 1, 0, 12), "“exposed” is in 3 metrics, 1 owner or cause and 12 columns"),
        ((0, 0, 1, 0), "“exposed” is in 1 rule"),
        ((0, 0, 0, 0), "Nothing here contains “exposed”"),
    ],
)
def test_a_search_says_what_it_found_in_every_tab(counts: tuple[int, ...], said: str) -> None:
    assert found_in("exposed", counts) == said
