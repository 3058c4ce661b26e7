"""Tests of validating summaries: an impossible value is refused with its column's name.

The values of a real rank are accepted.
"""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sawtooth.analysis.cluster.storage import storage_at
from sawtooth.analysis.cluster.summary import METADATA_KEY, SCHEMA, SUMMARY_VERSION, pack, unpack
from sawtooth.analysis.cluster.summary_file import gather
from sawtooth.analysis.cluster.validation import first_invalid_column
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.schema import DataFolder

CALL = {
    "name": "allreduce", "dtype": "Float", "group": "0 [0, 1]", "group_size": 2, "peer": None, "sends": 0, "receives": 0, "in_elements": 10,
    "out_elements": 10, "sequence": 1, "described": True, "step": 0, "start_ns": 5, "dur_ns": 4, "exposed_ns": 4, "exposed_from_ns": 0,
}  # fmt: skip
ROW: dict[str, Any] = {
    "kind": "trace", "source": "/a/0.json", "state": "1", "id": "0" * 16, "rank": 0, "world": 2, "device": 0, "pids": [7], "first_ns": 1, "step_ms": 1.5,
    "step": [{"label": "1", "counted": True, "start_ns": 0, "end_ns": 10}], "lost": [{"cause": "data_wait", "ms": 0.5}], "held_ms": 0.0,
    "quiet": [{"kernel": -5, "ns": 10.0, "calls": 2}], "beside": [9], "call": [CALL, {**CALL, "step": -1}],
}  # fmt: skip


def changed(place: str, value: Any) -> pa.Table:
    row = copy.deepcopy(ROW)
    column, _, field = place.partition(".")
    if field:
        row[column][0][field] = value
    else:
        row[column] = value
    return pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names}], schema=SCHEMA)


def test_a_valid_rank_summary_is_accepted() -> None:
    telemetry = {"kind": "refused", "source": "/a/1.json", "why": "cut off"}
    table = unpack(pack([ROW, telemetry, {**telemetry, "kind": "trace"}]))
    assert table.num_rows == 3 and first_invalid_column(table) is None


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("kind", "other"), ("kind", None), ("id", None), ("id", "../../etc/passwd"), ("rank", -1), ("rank", 2**31 - 1), ("world", 2**31 - 1), ("world", 0),
        ("device", -1), ("pids", None), ("pids", [None]), ("first_ns", 2**63 - 1), ("step_ms", float("nan")), ("step_ms", -1.0), ("held_ms", None),
        ("step", None), ("step", [None]), ("step.label", None), ("step.start_ns", -(2**63)), ("step.end_ns", -1), ("lost.ms", float("inf")), ("lost.cause", None),
        ("quiet.ns", -1.0), ("quiet.calls", None), ("beside", [None]), ("call", None), ("call.name", None), ("call.described", None), ("call.dur_ns", -1),
        ("call.dur_ns", 2**63 - 1), ("call.exposed_ns", 5), ("call.exposed_from_ns", 5), ("call.group_size", -2), ("call.step", 1), ("call.step", -2),
        ("call.in_elements", 2**62), ("source", "a" * 100_000),
    ],
)  # fmt: skip
def test_an_invalid_rank_summary_is_named(place: str, value: Any) -> None:
    reported = first_invalid_column(changed(place, value))
    assert reported == {"call.exposed_from_ns": "call.exposed_ns"}.get(place, place)


@pytest.mark.parametrize("sampled", [None, "", "{}", "[1]", '{"device": "x"}'])
def test_telemetry_without_values_is_named(sampled: str | None) -> None:
    row = {"kind": "telemetry", "source": "/a/t.jsonl", "id": "0" * 16, "pids": [], "sampled": sampled}
    with pytest.raises(SawtoothError, match="Column sampled of this summary has values"):
        unpack(pack([row]))


def as_summary(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pq.ParquetWriter(out, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA_KEY: str(SUMMARY_VERSION)})
    return out.getvalue()


def test_a_file_with_another_shape_is_refused_and_named(tmp_path: Path) -> None:
    complete = changed("rank", 0)
    calls = SCHEMA.get_field_index("call")
    shapes = {
        "less": complete.drop_columns(["state"]),
        "text": complete.set_column(calls, "call", pa.array(["text"])),
        "numbers": complete.set_column(calls, "call", pa.array([[1, 2]])),
        "rows": pa.concat_tables([complete] * 5000),
    }
    for name, table in shapes.items():
        with pytest.raises(SawtoothError, match="not a summary of a rank"):
            unpack(as_summary(table))
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.rank.parquet").write_bytes(as_summary(table))
        with pytest.raises(SawtoothError, match=r"0\.rank\.parquet: This is not a summary"):
            gather(storage_at(str(tmp_path / name)), DataFolder(tmp_path / "data").create())
