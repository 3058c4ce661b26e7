"""Odd lines of NVML telemetry cost themselves; a file without samples is refused in a sentence."""

from __future__ import annotations

import json

import duckdb
import pytest

from ingest.errors import SourceError
from ingest.recording import ingest_file
from ingest.schema import DataFolder
from tests.bad_traces import BASE

ABOUT = b'{"meta": true, "name": "NVIDIA H200", "driver": "580.1"}'
SOUND = [json.dumps({"t_ns": BASE + i * 10**8, "gpu_util": 10 * i, "mem_used": 1024}).encode() for i in range(5)]


def ingest(tmp_path, lines):
    path = tmp_path / "nvml.jsonl"
    path.write_bytes(b"\n".join(lines))
    folder = DataFolder(tmp_path / "data")
    ref = ingest_file(path, folder)
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        samples = con.execute("SELECT time_ns, util_pct, mem_used_bytes FROM samples ORDER BY time_ns").fetchall()
        notes = dict(con.execute("SELECT key, count FROM diagnostics").fetchall())
        truncated = con.execute("SELECT truncated FROM recording").fetchall()[0][0]
    return samples, notes, truncated


SAMPLES = [(BASE + i * 10**8, 10.0 * i, 1024) for i in range(5)]
SKIPPED = [
    b"garbage",
    b"[1, 2]",
    b'{"gpu_util": 5}',
    b'{"t_ns": "now", "gpu_util": 5}',
    b'{"t_ns": 1180591620717411303424, "gpu_util": 5}',
    b'{"t_ns": -5, "gpu_util": 5}',
    b'{"t_ns": NaN}',
    b'{"t_ns": 1700000000000000000, "gpu": 1e300}',
    b'{"t_ns": 1700000000000000000, "gpu_util": \xff}',
]


@pytest.mark.parametrize("line", SKIPPED, ids=lambda line: line[:40].decode(errors="replace"))
def test_a_line_that_is_no_sample_is_left_out(tmp_path, line):
    assert ingest(tmp_path, [ABOUT, *SOUND[:3], line, *SOUND[3:]]) == (SAMPLES, {"line_unreadable": 1}, False)


VALUES = [
    (b"NaN", None),
    (b'"N/A"', None),
    (b"null", None),
    (b"Infinity", None),
    (b'"12,5"', None),
    (b"true", None),
    (b"12.5", 12.5),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_value_that_is_no_number_is_not_recorded(tmp_path, text, value):
    odd = b'{"t_ns": %d, "gpu_util": %b, "mem_used": 1e300}' % (BASE + 5 * 10**8, text)
    samples, notes, _ = ingest(tmp_path, [ABOUT, *SOUND, odd])
    assert samples == [*SAMPLES, (BASE + 5 * 10**8, value, None)] and notes == {}


def test_a_torn_last_line_marks_the_file(tmp_path):
    assert ingest(tmp_path, [ABOUT, *SOUND, SOUND[0][:20]]) == (SAMPLES, {"line_unreadable": 1}, True)


def test_time_running_backwards_and_repeats_are_put_in_order(tmp_path):
    samples, notes, _ = ingest(tmp_path, [ABOUT, *reversed(SOUND), SOUND[2], b"", b"\r"])
    assert samples == SAMPLES and notes == {"samples_twice": 1}


@pytest.mark.parametrize("lines", [[ABOUT], [ABOUT, b""], [ABOUT, b'{"t_ns": "x"}']])
def test_no_sample_is_told(tmp_path, lines):
    with pytest.raises(SourceError) as refusal:
        ingest(tmp_path, lines)
    assert refusal.value.code == "E-NOEV" and "no samples" in str(refusal.value)
