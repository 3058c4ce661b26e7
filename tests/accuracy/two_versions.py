"""Compare the reports of two versions: ``python -m tests.accuracy.two_versions OTHER FOLDER…``.

OTHER is a checkout of the other version, made with ``git worktree add``. Each FOLDER has recordings, one folder each.
Both versions report on every recording from scratch. Every key whose value differs is printed with both values (except
``tool_version``). The exit code is 1 if any differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

SHOWN = 12  # differences a recording; more say nothing new
SAID_ELSEWHERE = ("tool_version",)


def report(checkout: Path, recording: Path) -> Any:
    """Return what the version in ``checkout`` reports on a folder; its complaint where it cannot."""
    module = "sawtooth" if (checkout / "sawtooth").is_dir() else "app.cli"
    with (
        tempfile.TemporaryDirectory() as data
    ):  # of its own: what one version read and derived is kept there, and taken by the next
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, "report", str(recording), "--format", "json"],
            env={**os.environ, "PYTHONPATH": str(checkout), "SAWTOOTH_DATA": data},
            capture_output=True,
            text=True,
        )
    return json.loads(done.stdout) if done.returncode == 0 else {"refused": done.stderr}


def differences(a: Any, b: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, value in a, value in b) of every leaf that differs."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(set(a) | set(b)):
            if path or key not in SAID_ELSEWHERE:
                yield from differences(a.get(key, "absent"), b.get(key, "absent"), f"{path}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, pair in enumerate(zip(a, b, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif a != b:
        yield path, a, b


def main() -> None:
    """Compare this checkout with another."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    given = parser.parse_args()
    recordings = sorted(path for folder in given.folders for path in folder.iterdir() if any(path.glob("*.json*")))
    differing = 0
    for recording in recordings:
        found = list(differences(report(given.other.resolve(), recording), report(ROOT, recording)))
        differing += bool(found)
        print(f"{recording.name}: {f'{len(found)} differences' if found else 'equal'}", flush=True)
        for path, other, this in found[:SHOWN]:
            print(f"  {path}: {json.dumps(other)[:160]} -> {json.dumps(this)[:160]}")
    print(f"{len(recordings)} recordings, {differing} differ")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
