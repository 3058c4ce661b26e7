"""Settings that `sawtooth run` passes to the hook in environment variables.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..process_rank import environment_number

FOLDER = "SAWTOOTH_RUN_FOLDER"
PROFILED_STEPS = "SAWTOOTH_RUN_STEPS"
AFTER_SECONDS = "SAWTOOTH_RUN_AFTER"
RECORDER = "SAWTOOTH_RUN_RECORDER"
EVERY = "SAWTOOTH_RUN_EVERY"
LOADER = "SAWTOOTH_RUN_LOADER"  # With "0", loaders are not timed.
STACKS = "SAWTOOTH_RUN_STACKS"  # With "1", Python calls are recorded.
MEMORY = "SAWTOOTH_RUN_MEMORY"  # With "1", the allocator's history is recorded with the profile.
ONLY_RANK = "SAWTOOTH_RUN_RANK"  # This variable is set if no other rank of the job writes into this folder.
DEFAULT_AFTER_S = 5.0  # The sampler takes 50 samples of the undisturbed loop in this time before the profile.


def with_run_folder(watch: Callable[[Any, Path], object]) -> Callable[[Any], object]:
    """Return a function that calls ``watch(module, run folder)``, unless loaders are not timed."""
    return lambda module: watch(module, Path(os.environ[FOLDER])) if os.environ.get(LOADER) != "0" else None


@dataclass(frozen=True)
class HookSettings:
    """Settings of the hook in one training process.

    ``folder`` is the recording's temporary folder. ``steps`` is the number of steps to profile (0: none). The profile begins after
    ``after_s`` seconds of the loop, and is repeated every ``every`` steps (0: never). ``rank`` is this process's rank in a job of
    ``ranks``, of which ``ranks_here`` write into this folder. ``recorder`` is the recorder's version. ``stacks`` records Python
    calls, ``memory`` the allocator's history.
    """

    folder: Path
    steps: int
    after_s: float
    rank: int | None
    ranks: int
    ranks_here: int
    recorder: str = ""
    every: int = 0
    stacks: bool = False
    memory: bool = False

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> HookSettings:
        """Read the settings from the environment."""
        rank, ranks = environment_number("RANK", environment), environment_number("WORLD_SIZE", environment) or 1
        rank, ranks = (rank, ranks) if rank is not None and ranks > 1 else (None, 1)
        return cls(
            Path(environment[FOLDER]),
            int(environment.get(PROFILED_STEPS) or 0),
            float(environment.get(AFTER_SECONDS) or DEFAULT_AFTER_S),
            rank,
            ranks,
            1 if environment.get(ONLY_RANK) else environment_number("LOCAL_WORLD_SIZE", environment) or ranks,
            environment.get(RECORDER, ""),
            int(environment.get(EVERY) or 0),
            environment.get(STACKS) == "1",
            environment.get(MEMORY) == "1",
        )

    def file(self, kind: str, suffix: str, infix: str = "") -> Path:
        """Return this process's file, such as marks-4711.jsonl; ``infix`` follows the PID or rank."""
        process = f"rank{self.rank}" if self.rank is not None else str(os.getpid())
        return self.folder / f"{kind}-{process}{infix}.{suffix}"
