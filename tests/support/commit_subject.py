"""Check commit subjects; the ``commit-msg`` hook of ``.pre-commit-config.yaml`` calls this.

python -m tests.support.commit_subject .git/COMMIT_EDITMSG
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONGEST = 72  # characters: `git log --oneline` fits a terminal of 80 columns
AREA = re.compile(r"[\w.][\w., /-]*: \S")
WRITTEN_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


def problems(message: str) -> list[str]:
    """Return the problems of a commit message's subject, as sentences."""
    subject = next((line for line in message.splitlines() if line.strip() and not line.startswith("#")), "").rstrip()
    if subject.startswith(WRITTEN_BY_GIT):
        return []
    found = []
    if len(subject) > LONGEST:
        found.append(f"The subject has {len(subject)} characters. Shorten it to at most {LONGEST}.")
    if not AREA.match(subject):
        found.append("The subject does not begin with an area. Write `area: what changes`, such as `docs: explain the replay`.")
    return found


def main(arguments: list[str]) -> int:
    """Print the problems of the message in a file; return 1 if there are any."""
    found = problems(Path(arguments[0]).read_text(encoding="utf-8"))
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
