"""Tests that counts and links in a recording equal those of a plain search in the file."""

from __future__ import annotations

import bisect
import gzip
import json
from collections import Counter
from decimal import Decimal
from operator import itemgetter

import duckdb
import pytest

from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.trace.torch_json.columns import KINDS
from tests.support import sound_trace
from tests.support.paths import SAMPLES, SHARED

REAL = sorted([*SHARED.glob("peer_traces/*.json.gz"), *SHARED.glob("recordings/*/*trace.json.gz")])
BUNDLED = sorted(SAMPLES.glob("**/*trace.json.gz"))


def by_category(path):
    """Return the number of complete events per table, read with the standard library's parser."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = document["traceEvents"] if isinstance(document, dict) else document
    counts = Counter(KINDS.get(str(e.get("cat")).lower(), "").replace("operator", "op") for e in events if e.get("ph") == "X")
    counts["memory"] = sum(e.get("ph") in ("i", "I") and e.get("name") == "[memory]" for e in events)
    return counts


@pytest.mark.sweep(5)
@pytest.mark.parametrize("path", [None, *REAL, *BUNDLED], ids=lambda p: f"{p.parent.name}/{p.name}"[-60:] if p else "synthetic")
def test_counts_match_the_standard_library(tmp_path, path):
    if path is None:
        path = tmp_path / "trace.json.gz"
        path.write_bytes(sound_trace.PACKED)
    counts = by_category(path)
    folder = DataFolder(tmp_path / "data")
    ref = ingest_file(path, folder)
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:

        def count(sql):
            return con.execute(f"SELECT count(*) FROM {sql}").fetchall()[0][0]

        found = {
            "op+annotation": count("cpu_ops"),
            "call": count("runtime_calls"),
            "kernel": count("gpu_ops WHERE kind = 'kernel'"),
            "memcpy": count("gpu_ops WHERE kind = 'memcpy'"),
            "memset": count("gpu_ops WHERE kind = 'memset'"),
            "gpu_annotation": count("gpu_annotations"),
            "python": count("python_calls"),
            "sync": count("syncs"),
            "overhead": count("overheads"),
            "memory": count("allocations"),
        }
        assert (
            count(
                "cpu_ops AS child JOIN cpu_ops AS parent ON child.parent_id = parent.cpu_op_id WHERE child.start_ns < parent.start_ns"
            )
            == 0
        )
    wanted = {key: counts[key] for key in found if "+" not in key} | {"op+annotation": counts["op"] + counts["annotation"]}
    assert found == wanted


def links_by_hand(path):
    """Return (start, launch start, name of the operator around the launch) of each GPU operation."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=str, parse_int=str)
    base = int(document.get("baseTimeNanoseconds", 0))
    events = [e | {"begin": int(Decimal(e["ts"]) * 1000) + base, "end": int((Decimal(e["ts"]) + Decimal(e["dur"])) * 1000) + base} for e in document["traceEvents"] if e["ph"] == "X"]  # fmt: skip
    kinds = {id(e): KINDS.get(e["cat"].lower()) for e in events}
    operators: dict[tuple[str, str], list[dict]] = {}
    calls = {}
    for e in sorted(events, key=lambda e: (e["begin"], -e["end"])):
        if kinds[id(e)] in ("op", "annotation"):
            operators.setdefault((e["pid"], e["tid"]), []).append(e)
        elif kinds[id(e)] == "call":
            calls[e["args"].get("correlation")] = e
    found = []
    for e in events:
        if kinds[id(e)] in ("kernel", "memcpy", "memset"):
            call = calls.get(e["args"].get("correlation"))
            thread_operators = operators.get((call["pid"], call["tid"]), []) if call else []
            begun_count = bisect.bisect_right(thread_operators, call["begin"], key=itemgetter("begin")) if call else 0
            operator_name = next(
                (
                    thread_operators[i]["name"]
                    for i in reversed(range(begun_count))
                    if call["end"] <= thread_operators[i]["end"]
                ),
                None,
            )
            found.append((e["begin"], call and call["begin"], operator_name))
    return sorted(found, key=str)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("path", [None, *BUNDLED], ids=lambda p: p.parent.name if p else "synthetic")
def test_links_match_a_slow_search(tmp_path, path):
    if path is None:
        path = tmp_path / "trace.json.gz"
        path.write_bytes(sound_trace.PACKED)
    folder = DataFolder(tmp_path / "data")
    ref = ingest_file(path, folder)
    sql = """SELECT gpu_ops.start_ns, runtime_calls.start_ns, names.name FROM gpu_ops LEFT JOIN runtime_calls USING (call_id)
             LEFT JOIN cpu_ops ON cpu_ops.cpu_op_id = gpu_ops.cpu_op_id LEFT JOIN names ON names.name_id = cpu_ops.name_id"""
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        assert sorted(con.execute(sql).fetchall(), key=str) == links_by_hand(path)
