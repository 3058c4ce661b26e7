"""Columns of stored frames: texts stored as codes, and integers with missing values.

Both are built from arrays, without a loop over the values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def categorical(codes: NDArray[np.integer], names: Sequence[str]) -> pd.Categorical:
    """Return the texts that ``codes`` index in ``names`` (all different); a code of -1 means missing."""
    return pd.Categorical.from_codes(codes, list(names))


def nullable(values: NDArray[np.integer]) -> pd.arrays.IntegerArray:
    """Return ``values`` as 64-bit integers, with negative values as missing."""
    return pd.arrays.IntegerArray(values.astype(np.int64), values < 0)
