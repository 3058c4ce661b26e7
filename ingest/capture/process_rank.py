"""Rank of a process in its job, from the environment variables of launchers."""

from __future__ import annotations

import os
from collections.abc import Mapping

# A process's kind in messages, the variable with its number, and the variable with the number of processes. Slurm sets
# SLURM_STEP_NUM_TASKS only under srun. A batch script is a single process.
LAUNCHER_VARIABLES = (
    ("rank", "RANK", "WORLD_SIZE"),
    ("task", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("task", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("task", "PMI_RANK", "PMI_SIZE"),
)


def environment_number(key: str, environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the number in the variable ``key``, such as RANK; None if it is not a natural number.

    Some launchers write -1 outside a job.
    """
    value = environment.get(key, "").strip()
    return int(value) if value.isdecimal() else None


def member_of_job(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return this process's name in its job, such as rank 1 or task 3; None for a single process."""
    for kind, number_key, count_key in LAUNCHER_VARIABLES:
        number = environment_number(number_key, environment)
        if number is not None and (environment_number(count_key, environment) or 1) > 1:
            return f"{kind} {number}"
    return None
