"""Tests of ``sawtooth map``: each rank is summarised once, in shares, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sawtooth.app.cli import cli
from sawtooth.ingest.errors import SawtoothError, UsageError
from tests.support.chrome_trace import matmul_loop


def counts(*arguments: str) -> dict[str, int]:
    result = CliRunner().invoke(cli, ["map", *arguments, "--jobs", "1", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_two_shares_write_every_summary_once(tmp_path: Path) -> None:
    traces, to = tmp_path / "traces", str(tmp_path / "summaries")
    (traces / "below").mkdir(parents=True)
    for i in range(3):
        matmul_loop(steps=3, step_us=800 + i).write(traces / "below" / f"{i}.json")
    (traces / "notes.json").write_text("[]")
    done = [counts(str(traces), "--to", to, "--part", part) for part in ("1/2", "2/2")]
    assert sum(item["sources"] for item in done) == 4
    assert sum(item["summarised"] for item in done) == 3
    assert sum(item["refused"] for item in done) == 1
    assert counts(str(traces), "--to", to) == {"sources": 4, "before": 4, "summarised": 0, "refused": 0, "failed": 0}


@pytest.mark.parametrize("part", ["0/2", "3/2", "2", "a/b", "-1/2"])
def test_an_invalid_share_is_refused(tmp_path: Path, part: str) -> None:
    with pytest.raises(UsageError, match="1/8 for the first"):
        CliRunner().invoke(cli, ["map", str(tmp_path), "--to", str(tmp_path), f"--part={part}"], catch_exceptions=False)


def test_a_source_that_disappears_is_named_and_the_command_fails(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    matmul_loop(steps=3).write(traces / "a.json")
    (tmp_path / "blocked").write_text("a file where the folder of summaries should be")
    with pytest.raises(SawtoothError, match="1 sources were not summarised"):
        CliRunner().invoke(
            cli, ["map", str(traces), "--to", str(tmp_path / "blocked" / "s"), "--jobs", "1"], catch_exceptions=False
        )
