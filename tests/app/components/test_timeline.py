"""Tests of the timeline's script: the committed bundle is built from its sources.

Their own tests pass too. Only these tests need node.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

HERE = ROOT / "app" / "components" / "timeline"
BUNDLE = HERE / "timeline.js"
needs_node = pytest.mark.skipif(
    shutil.which("npx") is None or not (HERE / "node_modules").is_dir(), reason="node and `npm ci` in app/components/timeline"
)


def test_the_bundle_contacts_no_host_and_evaluates_no_text() -> None:
    text = BUNDLE.read_text(encoding="utf-8")
    assert not re.search(r"https?://", text)
    assert not re.search(r"\beval\(|new Function|innerHTML|insertAdjacentHTML|document\.write", text)


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))
    assert all("resolved" not in package for package in lock["packages"].values())
    assert all(package.get("integrity") for name, package in lock["packages"].items() if name)


@needs_node
def test_the_bundle_is_built_from_its_sources(tmp_path: Path) -> None:
    built = tmp_path / "timeline.js"
    run("npx", "tsc", "--noEmit")
    run("npm", "run", "--silent", "build", "--", f"--outfile={built}", "--log-level=error")
    assert built.read_bytes() == BUNDLE.read_bytes(), "npm run build in app/components/timeline, then commit timeline.js"


@needs_node
def test_tests_of_the_component_pass() -> None:
    run("npm", "test", "--silent")


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
