"""A process's place in its job, as launchers put it into the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping


def number_of(key: str, environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the variable ``key`` (RANK, WORLD_SIZE, …), None where it is absent or no whole number from 0: some launchers write -1 for no job."""
    value = environment.get(key, "").strip()
    return int(value) if value.isdecimal() else None
