"""Rank of a process in its job, from the environment variables of launchers."""

from __future__ import annotations

import os
from collections.abc import Mapping

# The name in messages, the variable with the number, and the variable with the count. Slurm sets SLURM_STEP_NUM_TASKS only under srun, not
# in a batch script, which is a single process.
LAUNCHER_VARIABLES = (
    ("rank", "RANK", "WORLD_SIZE"),
    ("task", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("task", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("task", "PMI_RANK", "PMI_SIZE"),
)


def number_of(key: str, environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the variable ``key`` (RANK, WORLD_SIZE, …) as a number.

    None if the variable is absent, or is not a whole number from 0 on, because some launchers write -1 outside a job.
    """
    value = environment.get(key, "").strip()
    return int(value) if value.isdecimal() else None


def member_of_job(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return this process's name in its job, such as rank 1 or task 3; None for a single process."""
    for kind, key, count in LAUNCHER_VARIABLES:
        number = number_of(key, environment)
        if number is not None and (number_of(count, environment) or 1) > 1:
            return f"{kind} {number}"
    return None
