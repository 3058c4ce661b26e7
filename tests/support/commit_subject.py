"""Check commit subjects. The ``commit-msg`` hook of ``.pre-commit-config.yaml`` calls this module.

python -m tests.support.commit_subject .git/COMMIT_EDITMSG
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MAX_CHARACTERS = 72  # With it, a line of `git log --oneline` fits into 80 columns.
AREA = re.compile(r"[\w.][\w., /-]*: \S")
GIT_SUBJECTS = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


def problems(message: str) -> list[str]:
    """Return the problems of a commit message's subject, as sentences."""
    subject = next((line for line in message.splitlines() if line.strip() and not line.startswith("#")), "").rstrip()
    if subject.startswith(GIT_SUBJECTS):
        return []
    found = []
    if len(subject) > MAX_CHARACTERS:
        found.append(f"The subject has {len(subject)} characters. Shorten it to at most {MAX_CHARACTERS}.")
    if not AREA.match(subject):
        found.append("The subject does not begin with an area. Write `area: what changes`, such as `docs: explain the replay`.")
    return found


def main(arguments: list[str]) -> int:
    """Print the problems of the message in a file, and return 1 if there are any."""
    found = problems(Path(arguments[0]).read_text(encoding="utf-8"))
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
