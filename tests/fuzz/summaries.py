"""Make summaries of a job's ranks with impossible values.

Some values of intact summaries are replaced, as anyone can edit a Parquet file.
"""

from __future__ import annotations

import copy
import io
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sawtooth.analysis.cluster.mapping import SUFFIX
from sawtooth.analysis.cluster.storage import list_sources
from sawtooth.analysis.cluster.summary import METADATA_KEY, SCHEMA, SUMMARY_VERSION
from sawtooth.app.jobs.rank_summary import summarise
from tests.support.bulk_synchronous import Planted, job

RANKS = 4
FIRST_TOO_LARGE = {
    8: 2**7,
    16: 2**15,
    32: 2**31,
    64: 2**63,
}  # Bits of an integer, and the smallest positive number that does not fit into them.
INTEGERS = [
    0,
    0,
    1,
    1,
    2,
    3,
    7,
    -1,
    1000,
    10_000,
    10**6,
    10**9,
    32_767,
    -32_768,
    2**31 - 1,
    -(2**31),
    2**53 + 1,
    2**62,
    2**63 - 1,
    -(2**63),
    1_700_000_000_000_000_000,
]
FLOATS = [0.0, -0.0, 1e-300, 1.0, 10.0, 1e6, 1e11, -5.0, 1e18, 1e308, -1e308, float("nan"), float("inf"), float("-inf")]
TEXTS = ["", "\x00", "\x1b]0;t\x07", "\u202egnp", "a\nb", "<img src=x onerror=alert(1)>", "=1+1", "a" * 40_000, "trace", "telemetry", "refused", "' OR 1=1 --", "{}", "[]"]  # fmt: skip


@cache
def rows() -> list[dict[str, Any]]:
    """Return the summaries of an intact job. Its traces stay on disk until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="sawtooth-ranks-"))
    paths = [
        trace.write(folder / f"{rank}.json")
        for rank, trace in enumerate(job(RANKS, 2, Planted(loader_us={1: 900.0}), mesh=False))
    ]
    for source in list_sources([str(path) for path in paths]):
        summarise(source, str(folder / "summaries"))
    return [row for path in sorted((folder / "summaries").iterdir()) for row in pq.read_table(path).to_pylist()]


def files(rng: random.Random) -> list[tuple[str, bytes]]:
    """Return the files of summaries, of which at least one has an odd value."""
    some = copy.deepcopy(rows())
    for extra in range(rng.choice((0, 0, 20))):  # These ranks have no trace on disk.
        more = copy.deepcopy(rng.choice(some[:RANKS]))
        more |= {"rank": RANKS + extra, "id": f"{extra:016x}", "source": f"/nowhere/{extra}.json"}
        some.append(more)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 10))):
        _corrupt(rng.choice(some), SCHEMA, rng)
    return [(f"{number:04d}{SUFFIX}", _file(row, rng)) for number, row in enumerate(some)]


def _corrupt(row: dict[str, Any], schema: Any, rng: random.Random) -> None:
    name = rng.choice(schema.names if isinstance(schema, pa.Schema) else [field.name for field in schema])
    kind = schema.field(name).type
    if pa.types.is_list(kind) and isinstance(row[name], list) and row[name] and rng.random() < 0.85:
        entries, inside = row[name], kind.value_type
        at = rng.randrange(len(entries))
        if not pa.types.is_struct(inside):
            entries[at] = _odd_value(inside, rng)
        elif rng.random() < 0.2:
            entries.insert(at, copy.deepcopy(entries[at]))
        elif rng.random() < 0.1:
            entries[at] = None
        elif rng.random() < 0.3:  # The same odd value for every entry.
            field = rng.choice(list(inside))
            value = _odd_value(field.type, rng)
            for entry in filter(None, entries):
                entry[field.name] = value
        elif entries[at] is not None:
            _corrupt(entries[at], inside, rng)
    else:
        row[name] = _odd_value(kind, rng)


def _odd_value(kind: pa.DataType, rng: random.Random) -> Any:
    if rng.random() < 0.15:
        return None
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_integer(kind):
        return rng.choice([n for n in INTEGERS if -FIRST_TOO_LARGE[kind.bit_width] <= n < FIRST_TOO_LARGE[kind.bit_width]])
    if pa.types.is_floating(kind):
        return rng.choice(FLOATS)
    if pa.types.is_list(kind):
        return []
    return rng.choice(TEXTS)


def _file(row: dict[str, Any], rng: random.Random) -> bytes:
    """Return a row as a summary, sometimes with a wrong table.

    It may have one column less or more, a column of another type, or twice as many rows.
    """
    table = pa.Table.from_pylist([row] * rng.choice((1, 1, 1, 2)), schema=SCHEMA)
    if rng.random() < 0.05:
        name = rng.choice(SCHEMA.names)
        match rng.randrange(4):
            case 0:
                table = table.drop_columns([name])
            case 1:
                table = table.append_column("more", pa.array([1] * len(table)))
            case 2:
                table = table.set_column(SCHEMA.get_field_index(name), name, pa.array(["text"] * len(table)))
            case 3:
                table = table.set_column(SCHEMA.get_field_index(name), name, pa.array([[{"label": 1.5}]] * len(table)))
    out = io.BytesIO()
    with pq.ParquetWriter(out, table.schema, compression="zstd", store_schema=rng.random() < 0.1) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            {METADATA_KEY: str(rng.choice((SUMMARY_VERSION, SUMMARY_VERSION, SUMMARY_VERSION, 2, 3)))}
        )
    return out.getvalue()
