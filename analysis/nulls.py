"""Cells of the store as Python has them: a NULL is None, never NaN; JSON is decoded."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd


def none_if_null(value: Any) -> Any:
    """Return None for what pandas reads of a NULL, and any other value as it is."""
    return None if pd.isna(value) else value


def decoded(cell: Any) -> Any:
    """Return what a cell of JSON holds, a list that was decoded already as it is, and None for any other (a NULL)."""
    if isinstance(cell, str):
        return json.loads(cell)
    return cell if isinstance(cell, list) else None


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows as plain data, NULL as None."""
    return [
        {k: None if pd.isna(v) else v.item() if hasattr(v, "item") else v for k, v in row.items()}
        for row in frame.to_dict("records")
    ]
