"""Summarise one source of a large job; any process on any machine may do this, also repeatedly."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path

from sawtooth.analysis.cluster.mapping import SourceOutcome, summary_name
from sawtooth.analysis.cluster.storage import SourceVersion, parent_of, storage_at
from sawtooth.analysis.cluster.summarize import Row, rank_rows, refusal_row, telemetry_rows
from sawtooth.analysis.cluster.summary import pack
from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.errors import SawtoothError, SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder

DUCKDB_THREADS = 1  # Threads of DuckDB, because all cores already read sources in parallel.
NO_RANK_DATA = "It is neither a trace nor telemetry."


def summarise(source: SourceVersion, to: str) -> SourceOutcome:
    """Read ``source`` and write its summary to the place ``to``.

    If the source is no readable trace or telemetry, the summary says why, so that the source is not read again. After any other
    failure there is no summary.
    """
    try:
        try:
            rows = _rows(source)
        except SourceError as error:
            rows = [refusal_row(source, str(error))]
        storage_at(to).write(summary_name(source), pack(rows))
    except SawtoothError as error:
        return SourceOutcome(source.url, failed=str(error))
    except (OSError, MemoryError) as error:
        return SourceOutcome(source.url, failed=f"{type(error).__name__}: {error}")
    except Exception as error:  # A bug affects only this source, not the others.
        file = Path(traceback.extract_tb(error.__traceback__)[-1].filename).name
        return SourceOutcome(source.url, failed=f"This is a bug in Sawtooth ({type(error).__name__} in {file}).")
    refusals = [row["why"] for row in rows if row.get("why")]
    return SourceOutcome(source.url, ranks=len(rows) - len(refusals), refused=refusals[0] if refusals else None)


def _rows(source: SourceVersion) -> list[Row]:
    place, name = parent_of(source)
    with tempfile.TemporaryDirectory(prefix="sawtooth-rank-") as temporary:
        folder = DataFolder(Path(temporary) / "data").create()
        path = place.fetch(name, Path(temporary) / name)
        ref = ingest_file(path, folder, source_name=name, keep_source=False)
        if ref.kind not in ("trace", "telemetry"):
            return [refusal_row(source, NO_RANK_DATA)]
        if ref.kind == "trace":
            ensure_derived(folder, ref.id)
        with Library(folder, threads=DUCKDB_THREADS) as library:
            return (rank_rows if ref.kind == "trace" else telemetry_rows)(library, ref.id, source)
