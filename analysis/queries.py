"""Read SQL queries from the ``.sql`` file next to the module that uses them."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def queries_of(module_file: str) -> dict[str, str]:
    """Return the queries in the ``.sql`` file of a module (its ``__file__``), by name.

    Each query follows a line ``-- name: …``.
    """
    _, *parts = _NAME.split(Path(module_file).with_suffix(".sql").read_text(encoding="utf-8"))
    return {name: query.strip() for name, query in zip(parts[::2], parts[1::2], strict=True)}
