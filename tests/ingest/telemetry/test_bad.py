"""Tests of invalid lines in telemetry, which are the only lines that are lost."""

from __future__ import annotations

import json

import duckdb
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.sound_trace import BASE

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
def test_a_line_that_is_not_a_sample_is_left_out(tmp_path, line):
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
def test_a_value_that_is_not_a_number_is_not_recorded(tmp_path, text, value):
    odd = b'{"t_ns": %d, "gpu_util": %b, "mem_used": 1e300}' % (BASE + 5 * 10**8, text)
    samples, notes, _ = ingest(tmp_path, [ABOUT, *SOUND, odd])
    assert samples == [*SAMPLES, (BASE + 5 * 10**8, value, None)] and notes == {"blank_value": 1}


def test_an_incomplete_last_line_is_noted(tmp_path):
    assert ingest(tmp_path, [ABOUT, *SOUND, SOUND[0][:20]]) == (SAMPLES, {"line_unreadable": 1}, True)


def test_decreasing_and_repeated_times_are_sorted(tmp_path):
    samples, notes, _ = ingest(tmp_path, [ABOUT, *reversed(SOUND), SOUND[2], b"", b"\r"])
    assert samples == SAMPLES and notes == {"samples_twice": 1}


@pytest.mark.parametrize("lines", [[ABOUT], [ABOUT, b""]])
def test_a_file_without_samples_is_reported(tmp_path, lines):
    with pytest.raises(SourceError) as refusal:
        ingest(tmp_path, lines)
    assert refusal.value.code == "E-NOEV" and "no samples" in str(refusal.value)


def test_rows_without_a_usable_value_are_not_called_no_samples(tmp_path):
    with pytest.raises(SourceError) as refusal:
        ingest(tmp_path, [ABOUT, b'{"t_ns": "x"}'])
    assert refusal.value.code == "E-NOEV" and "no samples" not in str(refusal.value)
    assert "1 rows, but none has a usable value" in str(refusal.value)


SMI = b"timestamp, index, utilization.gpu [%], name\n"
SMI_LINE = b"2026/11/21 02:38:4%d.500, 0, 5 %%, H200\n"
WANDB = b"_timestamp,system.gpu.0.gpu\n"
PROMETHEUS = b'{"data": {"resultType": "matrix", "result": [{"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0"}, "values": [%b]}]}}'
ODD_LINES = {
    "a device of many digits": b"2026/11/21 02:38:41.000, 99999999999999999999999, 5 %, H200\n",
    "a year before all clocks": b"0001/01/01 02:38:41.000, 0, 5 %, H200\n",
    "a year beyond 64 bits": b"9999/12/31 23:59:59.9, 0, 5 %, H200\n",
    "a quote never closed": b'2026/11/21 02:38:41.000, 0, "5 %, H200\n',
    "a device below zero": b"2026/11/21 02:38:41.000, -7, 5 %, H200\n",
    "half a line": b"2026/11/21 02:38\n",
    "the year of a date": b"2026\n",
    "NUL": bytes(300) + b"\n",
    "no UTF-8": b"\xff\xfe, \xff\n",
}


@pytest.mark.parametrize("line", ODD_LINES.values(), ids=ODD_LINES.keys())
def test_only_the_odd_line_of_an_nvidia_smi_log_is_lost(tmp_path, line):
    samples, notes, _ = ingest(tmp_path, [SMI + SMI_LINE % 0 + line + SMI_LINE % 2])
    assert [util for _, util, _ in samples] == [5.0, 5.0] and notes["line_unreadable"] == 1
    assert "no_times" not in notes, "other lines keep their dates"


@pytest.mark.parametrize("odd", [b"1e300,5", b"-5,5", b",", b"nan,nan", b"inf,5", b'"1795226100,5'], ids=bytes.decode)
def test_only_the_odd_record_of_wandb_is_lost(tmp_path, odd):
    samples, _, _ = ingest(tmp_path, [WANDB + b"1795226089,50", odd, b"1795226104,60"])
    assert [util for _, util, _ in samples] == [50.0, 60.0]


@pytest.mark.parametrize("odd", [b'[NaN, "5"]', b'[1e300, "5"]', b"null", b"[]", b"{}", b'["x", "5"]', b'[1795226100, "+Inf"]', b"[1795226100, 1" + b"0" * 400 + b"]"])  # fmt: skip
def test_only_the_odd_value_of_prometheus_is_lost(tmp_path, odd):
    samples, _, _ = ingest(tmp_path, [PROMETHEUS % (b'[1795226089, "50"], %b, [1795226104, "60"]' % odd)])
    assert [util for _, util, _ in samples] == [50.0, 60.0]
