"""The summary of one rank as one row of about 10 KB in Parquet.

It has the rank's identity, steps, lost time by cause, kernels and collectives. A file has the rows of one source: one per
device of a trace, one per GPU of a telemetry file, or one row with the reason why the source cannot be read. Times are integer
nanoseconds on the rank's own clock. Lists contain structs, so that many files form one table and DuckDB can read parts of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sawtooth.analysis.cluster.validation import first_invalid_column
from sawtooth.ingest.errors import SawtoothError

SUMMARY_VERSION = 4  # Increase it when a row's format changes. ``map`` then makes the summaries again.
METADATA_KEY = "sawtooth_summary"
# Limits for one source: rows (devices of a process, or GPUs of a telemetry file), values of a column (calls of hours), and bytes.
MAX_ROWS, MAX_VALUES, MAX_BYTES = 4096, 20_000_000, 1 << 30

I16, I32, I64, F64, TEXT = pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.string()


def _structs(**fields: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([pa.field(name, kind) for name, kind in fields.items()]))


SCHEMA = pa.schema(
    {
        "kind": TEXT,  # One of trace, telemetry and refused.
        "source": TEXT,  # The source's address.
        "state": TEXT,  # Identifies the version of the source's bytes: an entity tag, or size and time.
        "bytes": I64,  # Size of the uncompressed source.
        "id": TEXT,  # The recording's id, from the source's content.
        "tool": TEXT,  # Version of Sawtooth that wrote the summary.
        "why": TEXT,  # The reason why it cannot be read.
        "rank": I32,
        "world": I32,
        "job": TEXT,  # Hash of the default process group, equal for all ranks of a job.
        "host": TEXT,
        "device": I32,
        "gpu": TEXT,
        "uuid": TEXT,
        "pids": pa.list_(I64),
        "first_ns": I64,
        "step_ms": F64,  # Step time of the profiled steps.
        "run_ms": F64,  # The run's step time, computed from this rank alone.
        "work_ms": F64,  # Time of the kernels in a profiled step, including communication.
        "step": _structs(label=TEXT, counted=pa.bool_(), start_ns=I64, end_ns=I64),
        # RankLosses in ranks.stragglers.outliers describes this column and the next three.
        "lost": _structs(cause=TEXT, ms=F64),
        "held_ms": F64,
        "quiet": _structs(kernel=I64, ns=F64, calls=I32),
        "beside": pa.list_(I64),
        "call": _structs(
            name=TEXT,
            dtype=TEXT,
            group=TEXT,
            group_size=I32,
            description=TEXT,  # Description of the process group.
            peer=I32,
            sends=I16,  # Numbers of sends and receives in one kernel between two ranks.
            receives=I16,
            in_elements=I64,
            out_elements=I64,
            bytes=I64,
            forward=pa.bool_(),  # Whether it was launched before its step's backward pass.
            serves=TEXT,  # The parallelism that the trace's operators show for an exchange.
            sequence=I64,
            described=pa.bool_(),
            step=I16,
            start_ns=I64,
            dur_ns=I64,
            exposed_ns=I64,
            exposed_from_ns=I64,
        ),
        "sampled": TEXT,  # A DeviceTelemetry as JSON.
    }
)


def pack(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return ``rows`` as a Parquet file; columns that a row lacks are null."""
    table = pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names} for row in rows], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    # Arrow's own copy of the schema and the statistics would take half of a small file.
    with pq.ParquetWriter(sink, SCHEMA, compression="zstd", store_schema=False, write_statistics=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA_KEY: str(SUMMARY_VERSION)})
    return bytes(sink.getvalue())


def unpack(content: bytes) -> pa.Table:
    """Return the rows in ``content``.

    Raises SawtoothError unless it is a summary of this version with valid values.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        version = (file.metadata.metadata or {}).get(METADATA_KEY.encode())
        if version != str(SUMMARY_VERSION).encode() or file.schema_arrow.names != SCHEMA.names or _bomb(file.metadata):
            raise SawtoothError("This is not a summary of a rank that this version of Sawtooth made. Run sawtooth map again.")
        table = file.read().cast(SCHEMA)
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        raise SawtoothError("This is not a summary of a rank, or it is damaged. Run sawtooth map again.") from error
    if column := first_invalid_column(table):
        raise SawtoothError(f"Column {column} of this summary has values that Sawtooth does not write. Run sawtooth map again.")
    return table


def _bomb(metadata: pq.FileMetaData) -> bool:
    """Return whether a file unpacks to more than any rank needs, such as a billion equal values."""
    columns = [
        metadata.row_group(group).column(c) for group in range(metadata.num_row_groups) for c in range(metadata.num_columns)
    ]
    return (
        metadata.num_rows > MAX_ROWS
        or any(column.num_values > MAX_VALUES for column in columns)
        or sum(column.total_uncompressed_size for column in columns) > MAX_BYTES
    )
