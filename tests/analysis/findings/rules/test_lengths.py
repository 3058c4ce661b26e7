"""A misaligned size that no layer multiplies by is the length of a sequence, and not a width."""

from __future__ import annotations

import pandas as pd
import pytest

from sawtooth.analysis.findings.rules.misaligned_dimensions import _action, _changes, _feature_sizes


def test_columns_of_single_matrices_are_features() -> None:
    rows = pd.DataFrame(
        {
            "flop_operator": ["aten::addmm", "aten::bmm", "aten::mm"],
            "flop_dims": [[[768], [25096, 768], [768, 3072]], [[96, 3137, 64], [96, 64, 3137]], [[25096, 768], [768, 774]]],
        }
    )
    assert _feature_sizes(rows) == {3072, 774}


@pytest.mark.parametrize(
    ("lengths", "what", "named"), [({3137}, "sequences of 3137", "length = 3137"), (set(), "3137", "features = 3137")]
)
def test_a_length_is_padded_and_masked(lengths: set[int], what: str, named: str) -> None:
    assert _action([3137], None, lengths).object == f"{what} to a multiple of 64"
    (change,) = _changes([3137], None, lengths)
    assert change.before == named
