"""Tests of the benchmark's traces, which repeat a trace with new times and ids."""

from __future__ import annotations

import gzip
import json

import duckdb

from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.benchmarks import scaled_trace
from tests.support import sound_trace


def test_repetitions_of_a_trace_are_complete_and_separate(tmp_path):
    source, target = tmp_path / "short.json.gz", tmp_path / "long.json.gz"
    source.write_bytes(gzip.compress(json.dumps(sound_trace.sound()).encode()))
    timed_events = len(sound_trace.sound_events()) - 1  # All events but the thread's name.
    count = scaled_trace.write(source, target, 4 * timed_events)
    assert count == 4 * timed_events + 1
    document = json.loads(gzip.decompress(target.read_bytes()))
    assert b'"ts": 100.125' in gzip.decompress(target.read_bytes()) and "^" not in json.dumps(document)  # Fractions as written.
    assert len(document["traceEvents"]) == count
    names = [e["name"] for e in document["traceEvents"] if e["name"].startswith("ProfilerStep#")]
    assert names == [f"ProfilerStep#{i}" for i in range(12)]
    folder = DataFolder(tmp_path / "data")
    ref = ingest_file(target, folder)
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        # Three steps of one kernel and one copy are repeated four times. Each operation is linked to its launch in the same step.
        assert con.execute("SELECT count(*), count(DISTINCT correlation), count(DISTINCT call_id) FROM gpu_ops").fetchall() == [
            (24, 24, 24)
        ]
        gaps = "SELECT count(*) FROM gpu_ops JOIN runtime_calls USING (call_id) WHERE gpu_ops.start_ns - runtime_calls.start_ns > 100000"
        assert con.execute(gaps).fetchall() == [(0,)]
        assert con.execute("SELECT max(last_ns) - min(first_ns) FROM recording").fetchall()[0][0] > 4 * 2_900_000
