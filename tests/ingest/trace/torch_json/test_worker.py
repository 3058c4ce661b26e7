"""Tests of worker processes for reading a trace.

Ids and tables do not depend on the number of workers, also if a worker fails.
"""

from __future__ import annotations

import json

import pytest

from sawtooth.ingest.source import Limits
from sawtooth.ingest.trace.build import store
from sawtooth.ingest.trace.spool import Spool
from sawtooth.ingest.trace.torch_json.facts import facts
from sawtooth.ingest.trace.torch_json.tables import TorchTrace
from sawtooth.ingest.trace.torch_json.text.blocks import Document
from sawtooth.ingest.trace.torch_json.worker import MIN_WORKER_BYTES, ParallelReader, worker_count
from sawtooth.ingest.writer import Writer
from tests.support import sound_trace
from tests.support.recorded_tables import SHAPE

EVENTS = [json.dumps(e).encode() for e in sound_trace.sound_events(400)]
BROKEN = [
    *EVENTS[:1500],
    b'{"ph": "X", "cat": "kernel", "name": "k" "oops"}',
    *EVENTS[1500:2500],
    sound_trace.kernel(dur=b"NaN"),
    *EVENTS[2500:],
]


def tables(tmp_path, events, workers, disturb=None):
    """Read ``events`` in blocks of some ten events; return every table with its ids, and the diagnostics."""
    content = b'{"schemaVersion": 1, "baseTimeNanoseconds": %d, "traceEvents": [%s], "traceName": "x"}' % (
        sound_trace.BASE,
        b",\n".join(events),
    )
    limits = Limits()
    spool = Spool(tmp_path, memory_bytes=0)
    document = Document(iter([content[i : i + 5000] for i in range(0, len(content), 5000)]), limits, block_bytes=3000)
    trace = TorchTrace(document, limits, spool)
    reading = ParallelReader(document, trace, limits, tmp_path, workers)
    writer = Writer(tmp_path / f"{workers}{disturb is not None}.duckdb")
    try:
        for count, _ in enumerate(reading.run()):
            if disturb and count == 20:
                disturb(reading)
        store(trace, facts(trace, []), writer)
        names = ["SELECT * FROM names ORDER BY 1", "SELECT * FROM threads ORDER BY 1", "SELECT * FROM signatures ORDER BY 1"]
        sql = [*SHAPE.values(), *names, "SELECT key, count, example FROM diagnostics ORDER BY key"]
        return [writer._connection.execute(text).fetchall() for text in sql], list(trace.tables["gpu"].runs)
    finally:
        reading.close()
        writer.close()
        spool.close()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("events", [EVENTS, BROKEN], ids=["sound", "broken"])
def test_several_workers_give_the_same_result_as_one_process(tmp_path, events, workers):
    one_process, _ = tables(tmp_path, events, 0)
    assert tables(tmp_path, events, workers)[0] == one_process
    assert len(one_process[0]) == 3 * 400  # Operators and annotations: three per step.


def kill(reading):
    reading._workers[0]._process.kill()
    reading._workers[0]._process.wait()


def test_a_killed_worker_costs_only_time(tmp_path):
    one_process, _ = tables(tmp_path, EVENTS, 0)
    assert tables(tmp_path, EVENTS, 1, disturb=kill)[0] == one_process


def test_small_sources_are_read_in_one_process():
    assert worker_count(MIN_WORKER_BYTES - 1) == 0
    assert 0 <= worker_count(MIN_WORKER_BYTES) <= 3
