"""Tests that a test run fails if a module leaves a thread behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

MODULE = """
import threading

def test_that_passes():
    never, soon = threading.Event(), threading.Event()
    threading.Thread(target=soon.wait, args=(0.2,)).start()  # This thread ends after 0.2 s.
    {thread}
"""
THREADS = {
    "none": "pass",
    "daemon": "threading.Thread(target=never.wait, name='forgotten', daemon=True).start()",
    "plain": "threading.Thread(target=never.wait, args=(10,)).start()",
}


@pytest.mark.slow
def test_a_thread_left_by_a_module_fails_the_test_run(tmp_path: Path) -> None:
    for name, thread in THREADS.items():
        (tmp_path / f"test_{name}.py").write_text(MODULE.format(thread=thread))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.support.threads", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "3 passed, 2 errors" in done.stdout, done.stdout
    assert "test_daemon.py leaves threads behind; end them: forgotten (threading.Event.wait)" in done.stdout
    assert "test_plain.py leaves threads behind" in done.stdout and "test_none.py leaves" not in done.stdout
