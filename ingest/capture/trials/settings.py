"""Settings that `sawtooth try` passes to the training in one environment variable.

Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

TRIAL = "SAWTOOTH_TRY"
NOTES = "trial"  # The notes of process 4711 are in trial-4711.json.
STOPPED_BY_GUARD = 86  # The guard ends a training with this exit code, before the training changes a file.


@dataclass(frozen=True)
class TrialSettings:
    """Settings of one trial's run.

    ``changes`` maps the slugs of changes to their values. Checkpoints are written into the folder ``saves``. With ``guards``, the training
    is ended before it changes an existing file outside the folders ``private``. Files that are newer than ``began_s``, the start of the
    session, may be changed. With ``losses``, the losses of the first steps are noted.
    """

    saves: str
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    guards: bool = True
    private: tuple[str, ...] = ()
    began_s: float = 0.0
    losses: bool = False

    def variable(self) -> str:
        """Return the value of the environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, variable: str) -> TrialSettings:
        """Read the value of the environment variable."""
        fields = json.loads(variable)
        return cls(**{**fields, "private": tuple(fields["private"])})
