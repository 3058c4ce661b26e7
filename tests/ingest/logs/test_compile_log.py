"""Tests of breaks, recompilations and compile times in structured logs of torch.compile."""

from __future__ import annotations

import gzip

import duckdb
import pytest

from sawtooth.app.jobs.ingest_files import files_of
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import GRAPH_BREAKS, SHARED

HEAD = 'V1122 04:25:10.340000 20723 torch/_dynamo/utils.py:2350] {"chromium_event": {}, "frame_id": 0, "has_payload": "d3"}\n\t"ts": 1795321510341354.5,\n'
BREAK = (
    'V1122 04:25:10.720000 20723 torch/_dynamo/symbolic_convert.py:5098] {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, '
    '"frame_id": 0, "frame_compile_id": 0, "attempt": 0, "has_payload": "45"}\n'
    "\tGraph break in user code at /home/me/train.py:8\n\tGraph Break Reason: Encountered graph break when attempting to trace CALL: a call:\n\t\n"
    "\tUnsupported Tensor.item() call\n\t  Explanation: no\n\t  Hint: Keep it a tensor.\n"
)
RECOMPILED = (
    'V1122 04:25:11.000000 20723 torch/_dynamo/guards.py:5400] {"artifact": {"name": "recompile_reasons", "encoding": "json"}, "frame_id": 0, '
    '"frame_compile_id": 1, "has_payload": "8b"}\n\t["0/0: tensor \'x\' size mismatch at index 0. expected 3, actual 4"]\n'
)
COMPILED = (
    'V1122 04:25:12.000000 20723 torch/_dynamo/utils.py:2009] {"compilation_metrics": {"compile_id": "0/1", "co_name": "forward", "co_filename": '
    '"/home/me/train.py", "co_firstlineno": 3, "start_time": 1795321510.5, "entire_frame_compile_time_s": 1.25}, "frame_id": 0, "frame_compile_id": 1}\n'
)


@pytest.fixture
def ask(tmp_path):
    folder = DataFolder(tmp_path / "data").create()

    def answer(content, *queries):
        path = tmp_path / "given.log"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        ref = ingest_file(path, folder)
        with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
            return [con.execute(query).fetchall() for query in queries]

    return answer


def test_breaks_recompilations_and_compile_times_are_read(ask):
    events, recording = ask(
        HEAD + BREAK + RECOMPILED + COMPILED,
        'SELECT kind, compile_id, time_ns, dur_ns, "function", file, line, reason, hint FROM compile_events',
        "SELECT kind, clock, first_ns FROM recording",
    )
    head_ns = 1_795_321_510_341_354_000  # Breaks and recompilations get the time of the last event with a time.
    assert events == [
        (
            "graph_break",
            "0/0",
            head_ns,
            None,
            None,
            "/home/me/train.py",
            8,
            "Unsupported Tensor.item() call",
            "Keep it a tensor.",
        ),
        (
            "recompile",
            "0/1",
            head_ns,
            None,
            None,
            None,
            None,
            "0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4",
            None,
        ),
        ("compile", "0/1", 1_795_321_510_500_000_000, 1_250_000_000, "forward", "/home/me/train.py", 3, None, None),
    ]
    assert recording == [("compile", "unix", head_ns)]


@pytest.mark.parametrize("count", [1, 5, 20])
def test_planted_breaks_are_counted_exactly(ask, count):
    content = gzip.decompress((GRAPH_BREAKS / f"breaks_{count}.log.gz").read_bytes())
    counts, places = ask(
        content,
        "SELECT kind, count(*) FROM compile_events GROUP BY 1 ORDER BY 1",
        "SELECT count(DISTINCT line) FROM compile_events WHERE kind = 'graph_break' AND reason LIKE 'Call to%graph_break()%'",
    )
    assert counts == [("compile", count + 1), ("compile_backward", count + 1), ("graph_break", count)]
    assert places == [(count,)]


def test_only_incomplete_entries_are_lost(ask):
    invalid_entry = COMPILED.replace('"co_firstlineno": 3', '"co_firstlineno": "three"')
    events, notes = ask(
        HEAD + invalid_entry + "\x00\xff<script>\n" + BREAK + RECOMPILED[: len(RECOMPILED) - 30],
        "SELECT kind, reason FROM compile_events",
        "SELECT key, count FROM diagnostics",
    )
    assert [kind for kind, _ in events] == ["graph_break", "recompile"]
    assert events[1][1].startswith('["0/0: tensor')
    assert notes == [("compile_log_skipped", 1)]


def test_absurd_numbers_are_unknown(ask):
    absurd_entry = (
        COMPILED.replace("1795321510.5", "-1e300")
        .replace("1.25", "1e300")
        .replace('"co_firstlineno": 3', '"co_firstlineno": 99999999999')
    )
    (events,) = ask(HEAD + absurd_entry, "SELECT time_ns, dur_ns, line FROM compile_events")
    assert events == [(1_795_321_510_341_354_000, None, None)]


def test_the_rank_comes_from_the_lines(ask):
    (rank,) = ask("[rank3]:" + COMPILED, "SELECT rank FROM recording")
    assert rank == [(3,)]


def test_a_log_without_a_compilation_is_reported(tmp_path):
    path = tmp_path / "empty.log"
    path.write_text(HEAD, encoding="utf-8")
    with pytest.raises(SourceError, match="has no compilation"):
        ingest_file(path, DataFolder(tmp_path / "data").create())


def test_a_folder_is_ingested_with_its_compile_logs(tmp_path):
    for name in ("dedicated_log_torch_trace_abc.log", "stdout.log", "trace.json"):
        (tmp_path / name).write_text("x", encoding="utf-8")
    assert [shown for _, shown in files_of(tmp_path)[0]] == ["dedicated_log_torch_trace_abc.log", f"{tmp_path.name}/trace.json"]


@pytest.mark.skipif(not (SHARED / "formats" / "tlparse_simple.log").exists(), reason="needs the shared files")
def test_a_log_of_2024(ask):
    (events,) = ask(
        (SHARED / "formats" / "tlparse_simple.log").read_bytes(),
        'SELECT kind, compile_id, dur_ns, "function", line FROM compile_events',
    )
    assert events == [("compile", "0/0", 1_659_332_000, "forward", 11123)]
