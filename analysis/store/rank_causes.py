"""Causes of exposed communication from all ranks of a run, as tables over the recorded ones.

A single recording cannot show these causes, so no derived file contains them. If a recording is opened as part of a run (by a
page, a rule or user SQL), its tables ``gaps``, ``causes``, ``lane_sums`` and ``long_slices`` include them.
"""

from __future__ import annotations

import hashlib

import duckdb
import msgspec

from sawtooth.analysis.derive import timeline_sums
from sawtooth.analysis.queries import queries_of

_SQL = queries_of(__file__)


class CausePieces(msgspec.Struct, frozen=True):
    """A device's exposed communication with one cause: disjoint intervals, and ledger values.

    ``evidence`` is the sentence that proves the cause; None without proof.
    """

    device: int
    cause: str
    starts_ns: list[int]
    ends_ns: list[int]
    ns: int
    unprofiled_ns_per_step: float | None
    evidence: str | None


class RankCauses(msgspec.Struct, frozen=True):
    """The exposed communication of one recording by device and cause, from all ranks."""

    parts: tuple[CausePieces, ...]

    @property
    def key(self) -> str:
        """A hash that identifies these causes."""
        return hashlib.blake2b(msgspec.msgpack.encode(self), digest_size=8).hexdigest()


def lay_over(
    con: duckdb.DuckDBPyConnection, recording: str, derived: str, causes: RankCauses, schema: str, sums_file: str | None = None
) -> None:
    """Create ``schema`` with tables that contain ``causes`` instead of the recorded values.

    ``recording``, ``derived`` and ``sums_file`` are aliases of attached files. In the search path, the schema must come
    before the recording's own schemas. It must be dropped before the recording is detached.
    """
    places = {"schema": schema, "derived": f'"{derived}".main', "summed": f'"{sums_file or derived}".main'}
    con.execute(_SQL["begin"].format(**places))
    for part in causes.parts:
        con.execute(_SQL["cause"].format(**places), [part.device, part.cause, part.ns, part.unprofiled_ns_per_step])
        con.execute(
            _SQL["pieces"].format(**places),
            {
                "device": part.device,
                "cause": part.cause,
                "starts": part.starts_ns,
                "ends": part.ends_ns,
                "evidence": part.evidence,
            },
        )
    first, last = con.execute(
        f'SELECT coalesce(first_ns, 0), coalesce(last_ns, 1) FROM "{recording}".main.recording'
    ).fetchall()[0]
    grid = {"origin": first, "cell": timeline_sums.cell_ns(last - first)}
    rows = timeline_sums.GAPS.replace("FROM gaps", f"FROM {schema}.comm_gaps")
    sums = timeline_sums.SUMS.format(source="gaps", depth="0", owner="owner", rows=rows, **grid)
    long = timeline_sums.LONG_PIECES.format(source="gaps", rows=rows, **grid)
    # so that the derived file's views find their tables
    con.execute(f"SET search_path = '{places['derived']},\"{recording}\".main'")
    con.execute(_SQL["views"].format(**places, sums=sums, long=long))
    con.execute("SET search_path = 'memory.main'")
