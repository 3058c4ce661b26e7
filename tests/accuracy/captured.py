"""Read captured runs with their truth, and parse the command line of ``batches`` and ``loaders``."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

Truth = dict[str, Any]  # The content of ``truth.json``.


def groups_by(folder: Path, setting: Callable[[Truth], str]) -> dict[str, dict[str, Truth]]:
    """Return the truths in ``folder``, grouped by the values named in ``setting``, and by run.

    A run is a sub-folder with a ``run.sawtooth`` and a ``truth.json``.
    """
    groups: dict[str, dict[str, Truth]] = defaultdict(dict)
    for path in sorted(folder.glob("*/truth.json")):
        truth = json.loads(path.read_text(encoding="utf-8"))
        if (path.parent / "run.sawtooth").exists():
            groups[setting(truth)][path.parent.name] = truth
    return dict(groups)


def command(doc: str | None, judge: Callable[[Path, Path], None]) -> None:
    """Judge the folder on the command line, with its data folder or a temporary one."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=None, help="store the recordings here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        judge(options.folder, options.data or Path(scratch))
