"""The agent skill: Markdown files that teach an agent to record, read, change and prove."""

from __future__ import annotations

import shutil
from pathlib import Path

from sawtooth.ingest.errors import UsageError

NAME = "sawtooth"  # The format of skills requires that the folder has the skill's name.


def write_skill(folder: Path) -> Path:
    """Write the skill into ``folder``/sawtooth and return that path; an older copy is replaced.

    Raises UsageError if it cannot be written.
    """
    skill_folder = folder.expanduser() / NAME
    try:
        for file in sorted(Path(__file__).parent.rglob("*.md")):
            target = skill_folder / file.relative_to(Path(__file__).parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    except OSError as error:
        raise UsageError(
            f"The skill cannot be written to {skill_folder} ({error.strerror}). Name a folder that you may write."
        ) from None
    return skill_folder
