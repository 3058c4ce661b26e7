"""Database cells as Python values: NULL is None, never NaN; JSON is decoded."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd


def none_if_null(value: Any) -> Any:
    """Return None for a pandas null value, and any other value unchanged."""
    return None if pd.isna(value) else value


def decode_cell(cell: Any) -> Any:
    """Return the decoded content of a JSON cell; a list stays unchanged, other values become None."""
    if isinstance(cell, str):
        return json.loads(cell)
    return cell if isinstance(cell, list) else None


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows as plain data, with NULL as None."""
    return [
        {k: None if pd.isna(v) else v.item() if hasattr(v, "item") else v for k, v in row.items()}
        for row in frame.to_dict("records")
    ]
