"""Tests of exports with --redact, from which environments of processes are removed completely."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sawtooth.ingest.runs.environments import without_environments
from sawtooth.ingest.runs.redact import CHUNK_BYTES
from tests.support.redaction import redacted


def make_environment(values: int) -> dict[str, str]:
    return {f"VARIABLE_{i}": f'value-{i}, {{ "x" \\ [' for i in range(values)}


@pytest.mark.parametrize("chunk", [1, 7, 1000, CHUNK_BYTES])
def test_an_environment_is_removed_anywhere_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("sawtooth.ingest.runs.redact.CHUNK_BYTES", chunk)
    before = {"traceEvents": [{"ph": "X", "name": f"f{i}"} for i in range(9)], "env": make_environment(40)}
    text = redacted(tmp_path, json.dumps(before))
    assert json.loads(text) == before | {"env": {}}
    text = redacted(tmp_path, json.dumps({"env": make_environment(40), "n": 1}, indent=1))
    assert json.loads(text) == {"env": {}, "n": 1}


ODD_VALUES = {
    "HOME": "/root",
    "LINE": 'value-1 "q" b]} \\',
    "ONE": "it's value-2",
    "BOTH": 'it\'s "value-3" \\',
    "L": ["value-4"],
}


@pytest.mark.parametrize("depth", range(5))
@pytest.mark.parametrize("chunk", [1, 7, CHUNK_BYTES])
def test_an_environment_inside_json_text_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int, chunk: int
) -> None:
    """Launchers write the environment into a trace's metadata.

    Each surrounding text doubles the backslashes.
    """
    monkeypatch.setattr("sawtooth.ingest.runs.redact.CHUNK_BYTES", chunk)
    text = json.dumps({"env": ODD_VALUES, "n": 1})
    for _ in range(depth):
        text = json.dumps({"metadata": text, "z": 2})
    redacted_json = json.loads(redacted(tmp_path, text))
    for _ in range(depth):
        assert redacted_json["z"] == 2
        redacted_json = json.loads(redacted_json["metadata"])
    assert redacted_json == {"env": {}, "n": 1}


@pytest.mark.parametrize("written", [str({"env": ODD_VALUES, "x": 1}), f"environ({ODD_VALUES!r}), x"])
def test_an_environment_in_python_notation_is_removed(tmp_path: Path, written: str) -> None:
    redacted_json = json.loads(redacted(tmp_path, json.dumps({"argv": written, "z": 2})))
    assert redacted_json == {"argv": written.replace(repr(ODD_VALUES), "{}"), "z": 2}


def test_an_environment_in_a_cut_text_ends_with_that_text(tmp_path: Path) -> None:
    incomplete_text = json.dumps({"env": ODD_VALUES})[:40]
    assert json.loads(redacted(tmp_path, json.dumps({"m": incomplete_text, "z": 2}))) == {"m": '{"env": {', "z": 2}


def test_large_and_truncated_environments_are_removed(tmp_path: Path) -> None:
    text = json.dumps({"n": 1, "env": make_environment(5000)})
    assert len(text) > 128 << 10
    assert json.loads(redacted(tmp_path, text)) == {"n": 1, "env": {}}
    assert redacted(tmp_path, text[:-9]) == '{"n": 1, "env": {'


def test_time_per_environment_does_not_grow_with_their_number() -> None:
    """Four times as many environments once took twenty times as long."""

    def seconds(count: int) -> float:
        text = b'{"env":{"A":"b"},' * count
        began = time.process_time()
        assert b"".join(without_environments([text])) == b'{"env":{},' * count
        return time.process_time() - began

    assert min(seconds(16_000) for _ in range(3)) < 10 * min(seconds(4_000) for _ in range(3))
