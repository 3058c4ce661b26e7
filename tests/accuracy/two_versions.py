"""Compare the reports of two versions: ``python -m tests.accuracy.two_versions OTHER FOLDER…``.

OTHER is a checkout of the other version, made with ``git worktree add``. Each FOLDER has recordings, one folder each.
Both versions report on every recording from scratch. Every key whose value differs is printed with both values (except
``tool_version``). The exit code is 1 if any differs.

With ``--kinds``, it prints the kinds of changes instead, each with its recordings: another trust, a value that is
missing or off by more than 1 %, another note, and other findings. Sentences are not compared. The exit code is 0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

SHOWN = 12  # Printed differences per recording.
NOT_COMPARED = ("tool_version",)
CLOSE = 0.01  # Relative difference of two equal values.


def report(checkout: Path, recording: Path) -> Any:
    """Return the report of the version in ``checkout`` on a folder, or its error."""
    module = "sawtooth" if (checkout / "sawtooth").is_dir() else "app.cli"
    # Each version has its own data folder. Otherwise, the second one would use the files of the first.
    with tempfile.TemporaryDirectory() as data:
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
            if path or key not in NOT_COMPARED:
                yield from differences(a.get(key, "absent"), b.get(key, "absent"), f"{path}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, pair in enumerate(zip(a, b, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif a != b:
        yield path, a, b


def kinds_of_change(other: Any, this: Any) -> Iterator[str]:
    """Yield the kinds in which this version's report differs from the other's, without texts."""
    if "refused" in other or "refused" in this:
        if "refused" not in other or "refused" not in this:
            yield "refused by " + ("the other version" if "refused" in other else "this version")
        return
    for key in sorted(other["metrics"].keys() & this["metrics"].keys()):
        a, b = other["metrics"][key], this["metrics"][key]
        if a["trust"] != b["trust"]:
            yield f"trust of {key}: {a['trust']} → {b['trust']}"
        if a["value"] is None or b["value"] is None:
            if a["value"] != b["value"]:
                yield f"value of {key}: {'missing' if b['value'] is None else 'new'}"
        elif abs(a["value"] - b["value"]) > CLOSE * max(abs(a["value"]), abs(b["value"])):
            yield f"value of {key}: differs by more than {CLOSE:.0%}"
    before, after = ({note["key"] for note in item["diagnostics"]} for item in (other, this))
    yield from (f"note {key}: {'new' if key in after else 'gone'}" for key in sorted(before ^ after))
    old, new = ({found["rule"]: found["severity"] for found in item["findings"]} for item in (other, this))
    yield from (
        f"finding {rule}: {old.get(rule, 'none')} → {new.get(rule, 'none')}"
        for rule in sorted(old.keys() | new.keys())
        if old.get(rule) != new.get(rule)
    )
    if next(iter(old), None) != next(iter(new), None):
        yield f"first finding: {next(iter(old), 'none')} → {next(iter(new), 'none')}"


def print_kinds(reports: Iterable[tuple[str, Any, Any]]) -> None:
    """Print the kinds of changes between (name, other report, this report), each with its recordings."""
    changed: dict[str, list[str]] = defaultdict(list)
    count = 0
    for name, other, this in reports:
        count += 1
        for kind in kinds_of_change(other, this):
            changed[kind].append(name)
    for kind, names in sorted(changed.items()):
        print(f"{kind} ({len(names)}): {', '.join(names)}")
    print(f"{count} recordings, {len(set().union(*changed.values()))} with such changes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--kinds", action="store_true", help="print kinds of changes, each with its recordings")
    options = parser.parse_args()
    recordings = sorted(path for folder in options.folders for path in folder.iterdir() if any(path.glob("*.json*")))
    if options.kinds:
        print_kinds((item.name, report(options.other.resolve(), item), report(ROOT, item)) for item in recordings)
        return
    differing = 0
    for recording in recordings:
        found = list(differences(report(options.other.resolve(), recording), report(ROOT, recording)))
        differing += bool(found)
        print(f"{recording.name}: {f'{len(found)} differences' if found else 'equal'}", flush=True)
        for path, other, this in found[:SHOWN]:
            print(f"  {path}: {json.dumps(other)[:160]} -> {json.dumps(this)[:160]}")
    print(f"{len(recordings)} recordings, {differing} differ")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
