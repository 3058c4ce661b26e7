"""Tests of the modules that commands load: only those that they use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.command_line import run
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    "command", ["report", "compare", "sweep", "ingest", "map", "reduce", "export", "import", "runs", "serve", "demo", "doctor"]
)
def test_every_command_has_a_short_help(command: str) -> None:
    assert "Usage" in run(command, "-h").output


def test_help_and_version_load_only_the_table_of_commands() -> None:
    for option in ("--help", "--version"):
        asks = f"import sys; sys.argv = ['sawtooth', {option!r}]; from sawtooth.app.cli import cli; cli(standalone_mode=False); print(sorted(sys.modules))"
        loaded = subprocess.run(
            [sys.executable, "-c", asks], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
        ).stdout
        assert "'sawtooth.app.cli'" in loaded
        assert not [name for name in ("numpy", "pandas", "scipy", "streamlit", "duckdb", "plotly") if f"'{name}'" in loaded]


@pytest.mark.parametrize("module", ["sawtooth.app.commands.serve", "sawtooth.app.commands.run", "sawtooth.app.commands.sample"])
def test_commands_that_start_programs_start_at_once(module: str) -> None:
    # The server and the training load their own modules, which would otherwise be loaded twice.
    asks = f"import sys, {module}; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", asks], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    ).stdout
    assert not [name for name in ("numpy", "pandas", "scipy", "streamlit", "plotly") if f"'{name}'" in loaded]


@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        ("sawtooth.app.commands.report", ("scipy", "jinja2", "streamlit", "plotly.graph_objs")),
        ("sawtooth.app.commands.compare", ("scipy", "jinja2", "streamlit", "plotly.graph_objs")),
        ("sawtooth.ingest.trace.torch_json.worker", ("pandas", "duckdb", "scipy", "jinja2")),
        ("sawtooth.analysis.store.sql_process", ("pandas", "numpy", "pyarrow", "scipy")),
    ],
)
def test_a_command_and_a_reading_process_load_only_what_they_use(module: str, left_out: tuple[str, ...]) -> None:
    asks = f"import sys, {module}; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", asks], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    ).stdout
    assert f"'{module}'" in loaded
    assert not [name for name in left_out if f"'{name}'" in loaded]


def test_a_shell_can_complete_the_commands() -> None:
    asked = os.environ | {
        "PYTHONPATH": str(ROOT),
        "_SAWTOOTH_COMPLETE": "complete_bash",
        "COMP_WORDS": "sawtooth rep",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv = ['sawtooth']; from sawtooth.app.cli import cli; cli(prog_name='sawtooth')"
    answer = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, timeout=60).stdout
    assert answer.split() == ["report"]


def test_a_wrong_name_is_reported_before_packages_are_loaded(data: str) -> None:
    code = "import sys\nfrom sawtooth.app import cli\nsys.argv = ['sawtooth', 'report', 'missing.json', '--data', sys.argv[1]]\ntry: cli.main()\nfinally: print([name for name in ('pandas', 'duckdb', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, data], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "[]\n"), done.stderr
    assert "Neither a run nor a file is called 'missing.json'." in done.stderr and len(done.stderr.splitlines()) == 1
