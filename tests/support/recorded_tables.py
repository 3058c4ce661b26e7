"""The content of a recording that must be the same for two equal recordings."""

from __future__ import annotations

import duckdb

SHAPE = {  # Equal recordings agree in everything but ids of names in order of appearance.
    "cpu_ops": "SELECT kind, name, start_ns, dur_ns, parent_id, depth, external_id, sequence_number, input_dims, input_types FROM cpu_ops JOIN names USING (name_id) LEFT JOIN signatures USING (signature_id) ORDER BY cpu_op_id",
    "runtime_calls": "SELECT name, start_ns, dur_ns, correlation, cpu_op_id, gpu_ops FROM runtime_calls JOIN names USING (name_id) ORDER BY call_id",
    "gpu_ops": "SELECT kind, name, device, stream, start_ns, dur_ns, correlation, call_id, cpu_op_id, grid_z, block_x, bytes FROM gpu_ops JOIN names USING (name_id) ORDER BY gpu_op_id",
    "python_calls": "SELECT name, start_ns, dur_ns, parent_id FROM python_calls JOIN names USING (name_id) ORDER BY python_call_id",
    "threads": "SELECT pid, tid, name FROM threads ORDER BY thread_id",
    "devices": "SELECT device, name FROM devices",
}


def read(folder, ref):
    """Return all content that must be equal, the diagnostics by key, and whether the trace was cut."""
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        tables = {key: con.execute(sql).fetchall() for key, sql in SHAPE.items()}
        notes = dict(con.execute("SELECT key, count FROM diagnostics").fetchall())
        truncated = con.execute("SELECT truncated FROM recording").fetchall()[0][0]
    return tables, notes, truncated
