"""Tests of recordings made before a quantity was sampled, which have no column for it.

Charts and texts treat it as not measured.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.host import host_load
from sawtooth.analysis.telemetry.series import telemetry
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.telemetry_files import telemetry_file


def test_quantity_of_a_later_version_is_not_measured(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data").create()
    ref = ingest_file(telemetry_file(tmp_path / "nvml.jsonl"), folder)
    path = folder.recording_file(ref.id)
    path.chmod(0o600)
    with duckdb.connect(str(path)) as con:
        con.execute("ALTER TABLE samples DROP COLUMN sm_active_pct")
        con.execute("ALTER TABLE host_samples DROP COLUMN swap_used_bytes")
        con.execute("INSERT INTO host_samples (time_ns, cpu_pct) SELECT DISTINCT time_ns, 50 FROM samples")
    with Library(folder) as library, library.open(ref.id, derived=False) as recording:
        drawn, host = telemetry(recording, 0), host_load(recording, None)
    assert drawn.has("util_pct") and not drawn.has("sm_active_pct") and drawn.has("cpu_pct")
    assert host is not None and host.means == {"cpu_pct": 50.0}
