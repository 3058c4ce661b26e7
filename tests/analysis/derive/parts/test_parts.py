"""Tests of deriving a recording in parts: the results equal those of the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sawtooth.analysis.derive.build import derive
from sawtooth.analysis.derive.parts import cuts
from sawtooth.analysis.derive.parts.part import DerivedPart
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.paths import RECORDINGS, SAMPLES

# If each part sees enough of its neighbours, these tables do not depend on where a recording is cut.
EXACT = ("steps", "windows", "segments", "gpu_op_steps", "kernel_classes", "owner_exceptions", "operators")
PIECES = "SELECT * EXCLUDE (gap, evidence) FROM {}.gaps"
SAME_CAUSES = ("attention_sdpa", "ddp_balanced", "eval_with_grad", "mlp_graph", "optimizer_heavy")
CARRIED = ("gpt_small", "loader_workers", "mlp_eager", "slow_every_fourth")


def cut_small(monkeypatch: pytest.MonkeyPatch, rows: int = 300, fewest: int = 1) -> list[DerivedPart]:
    """Let recordings be cut into parts of this many events and steps.

    Return the list of parts, which fills as they are read.
    """
    parts: list[DerivedPart] = []
    load = cuts.load

    def loaded(*arguments: Any) -> DerivedPart:
        parts.append(load(*arguments))
        return parts[-1]

    for name, value in (
        ("PART_ROWS", rows),
        ("MIN_STEPS", fewest),
        ("PART_OPERATIONS", 10**9),
        ("USUAL_EVENTS", 0),
        ("load", loaded),
    ):
        monkeypatch.setattr(cuts, name, value)
    return parts


def recorded(trace: Path, tmp_path: Path) -> Path:
    folder = DataFolder(tmp_path / "data").create()
    return folder.recording_file(ingest_file(trace, folder, keep_source=False).id)


def both_ways(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[duckdb.DuckDBPyConnection, list[DerivedPart]]:
    """Derive a trace both as a whole and in parts of one or two steps.

    Return a connection that sees both results, and the parts.
    """
    recording = recorded(trace, tmp_path)
    derive(recording, tmp_path / "whole.duckdb")
    parts = cut_small(monkeypatch)
    derive(recording, tmp_path / "parts.duckdb")
    con = duckdb.connect()
    for name in ("whole", "parts"):
        con.execute(f"ATTACH '{tmp_path / name}.duckdb' AS {name} (READ_ONLY)")
    return con, parts


def differing(con: duckdb.DuckDBPyConnection, select: str) -> list[Any]:
    one, other = (select.format(name) for name in ("whole", "parts"))
    return con.execute(f"({one} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {one})").fetchall()


def trace_of(name: str) -> Path:
    return SAMPLES / "gpt" / "trace.json.gz" if name == "gpt" else sorted((RECORDINGS / name).glob("*trace.json.gz"))[0]


def facts_of(con: duckdb.DuckDBPyConnection, name: str) -> dict[str, Any]:
    facts = {key: json.loads(value) for key, value in con.execute(f"SELECT key, value FROM {name}.facts").fetchall()}
    return {key: {**value, "estimate": None} if isinstance(value, dict) else value for key, value in facts.items()}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["gpt", *SAME_CAUSES])
def test_parts_give_the_same_result_as_the_complete_recording(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    con, parts = both_ways(trace_of(name), tmp_path, monkeypatch)
    assert len(parts) >= 3
    assert {table: differing(con, f"SELECT * FROM {{}}.{table}") for table in EXACT} == {table: [] for table in EXACT}
    assert differing(con, PIECES) == []
    assert differing(con, "SELECT owner, cause, ns FROM {}.causes WHERE ns > 0") == []
    assert facts_of(con, "parts") == facts_of(con, "whole")
    gaps = con.execute(
        "SELECT count(*), count(DISTINCT (device, gap)) FROM whole.gaps UNION ALL SELECT count(*), count(DISTINCT (device, gap)) FROM parts.gaps"
    )
    (pieces, whole), (_, cut) = gaps.fetchall()
    assert pieces and whole <= cut <= whole + len(parts), "a gap may be cut where a part ends, and no two share a number"


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", CARRIED)
def test_only_attributed_waits_change_at_the_border_of_parts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A wait explains lost time after it, and a part does not know how much of an earlier wait is left over.
    con, parts = both_ways(trace_of(name), tmp_path, monkeypatch)
    assert len(parts) >= 3
    assert {table: differing(con, f"SELECT * FROM {{}}.{table}") for table in EXACT} == {table: [] for table in EXACT}
    owners = "SELECT owner, sum(ns) FROM {}.causes GROUP BY 1"
    assert differing(con, owners) == []
    sums = "SELECT owner, cause, sum(end_ns - start_ns) AS ns FROM {0}.gaps GROUP BY ALL EXCEPT SELECT owner, cause, ns FROM {0}.causes"
    assert con.execute(sums.format("parts")).fetchall() == [], "the ledger is the sum of its pieces"
    window = con.execute("SELECT sum(end_ns - start_ns) FROM whole.windows").fetchone()
    causes = [dict(con.execute(f"SELECT (owner, cause), ns FROM {of}.causes").fetchall()) for of in ("whole", "parts")]
    assert window is not None
    moved = sum(abs(causes[0].get(key, 0) - causes[1].get(key, 0)) for key in {**causes[0], **causes[1]}) / 2
    assert moved <= 0.03 * int(window[0])  # Parts have one or two steps here, and hundreds in long recordings.


def test_part_has_its_steps_and_one_more_on_each_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, parts = both_ways(trace_of("slow_every_fourth"), tmp_path, monkeypatch)
    steps = len(parts[0].host.starts)
    rows = sum(int(part.own_ops.sum()) for part in parts)
    assert len(parts) == steps == 8  # Split the trace into 8 parts of a few hundred events.
    assert max(len(part.events.ops) for part in parts) < 4.5 / steps * rows  # Three steps, one of four is longer.


def test_an_unmarked_recording_and_a_short_one_are_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = matmul_loop()
    trace.events = [event for event in trace.events if not str(event.get("name", "")).startswith("ProfilerStep")]
    unmarked = recorded(trace.write(tmp_path / "t.json"), tmp_path / "a")
    short = recorded(trace_of("mlp_graph"), tmp_path / "b")
    derive(short, tmp_path / "short.duckdb")
    parts = cut_small(monkeypatch, rows=1)
    derive(unmarked, tmp_path / "unmarked.duckdb")
    monkeypatch.setattr(cuts, "USUAL_EVENTS", 60_000)
    derive(short, tmp_path / "again.duckdb")
    assert parts == []
