"""Columns of stored frames: texts as codes of a short list, and integers that may be missing.

Both are built from arrays, without a loop over the values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def categorical(codes: NDArray[np.integer], names: Sequence[str]) -> pd.Categorical:
    """Return the texts that ``codes`` index in ``names`` (all different); missing where a code is -1."""
    return pd.Categorical.from_codes(codes, list(names))


def nullable(values: NDArray[np.integer]) -> pd.arrays.IntegerArray:
    """Return ``values`` as 64-bit integers, missing where they are negative."""
    return pd.arrays.IntegerArray(values.astype(np.int64), values < 0)
