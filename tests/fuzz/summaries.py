"""Make summaries of a job's ranks with impossible values.

They are intact summaries, edited as Parquet lets anyone edit them.
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
from sawtooth.analysis.cluster.summary import ABOUT, SCHEMA, SUMMARY_VERSION
from sawtooth.app.jobs.rank_summary import summarise
from tests.support.bulk_synchronous import Planted, job

RANKS = 4
INTEGERS = {8: 2**7, 16: 2**15, 32: 2**31, 64: 2**63}  # by width, the first number that does not fit
WHOLE = [
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
REAL = [0.0, -0.0, 1e-300, 1.0, 10.0, 1e6, 1e11, -5.0, 1e18, 1e308, -1e308, float("nan"), float("inf"), float("-inf")]
WORDS = ["", "\x00", "\x1b]0;t\x07", "\u202egnp", "a\nb", "<img src=x onerror=alert(1)>", "=1+1", "a" * 40_000, "trace", "telemetry", "refused", "' OR 1=1 --", "{}", "[]"]  # fmt: skip


@cache
def rows() -> list[dict[str, Any]]:
    """Return the summaries of an intact job, whose traces exist until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="sawtooth-ranks-"))
    paths = [
        trace.write(folder / f"{rank}.json")
        for rank, trace in enumerate(job(RANKS, 2, Planted(loader_us={1: 900.0}), mesh=False))
    ]
    for source in list_sources([str(path) for path in paths]):
        summarise(source, str(folder / "summaries"))
    return [row for path in sorted((folder / "summaries").iterdir()) for row in pq.read_table(path).to_pylist()]


def files(dice: random.Random) -> list[tuple[str, bytes]]:
    """Return summaries as files, one or some of them odd."""
    some = copy.deepcopy(rows())
    for further in range(dice.choice((0, 0, 20))):  # ranks whose traces are gone: more than have files of their own
        more = copy.deepcopy(dice.choice(some[:RANKS]))
        more |= {"rank": RANKS + further, "id": f"{further:016x}", "source": f"/nowhere/{further}.json"}
        some.append(more)
    for _ in range(dice.choice((1, 1, 1, 1, 2, 3, 10))):
        _spoil(dice.choice(some), SCHEMA, dice)
    return [(f"{number:04d}{SUFFIX}", _file(row, dice)) for number, row in enumerate(some)]


def _spoil(row: dict[str, Any], schema: Any, dice: random.Random) -> None:
    name = dice.choice(schema.names if isinstance(schema, pa.Schema) else [field.name for field in schema])
    kind = schema.field(name).type
    if pa.types.is_list(kind) and isinstance(row[name], list) and row[name] and dice.random() < 0.85:
        entries, inside = row[name], kind.value_type
        at = dice.randrange(len(entries))
        if not pa.types.is_struct(inside):
            entries[at] = _odd(inside, dice)
        elif dice.random() < 0.2:
            entries.insert(at, copy.deepcopy(entries[at]))
        elif dice.random() < 0.1:
            entries[at] = None
        elif dice.random() < 0.3:  # one field of every entry
            field = dice.choice(list(inside))
            value = _odd(field.type, dice)
            for entry in filter(None, entries):
                entry[field.name] = value
        elif entries[at] is not None:
            _spoil(entries[at], inside, dice)
    else:
        row[name] = _odd(kind, dice)


def _odd(kind: pa.DataType, dice: random.Random) -> Any:
    if dice.random() < 0.15:
        return None
    if pa.types.is_boolean(kind):
        return dice.random() < 0.5
    if pa.types.is_integer(kind):
        return dice.choice([n for n in WHOLE if -INTEGERS[kind.bit_width] <= n < INTEGERS[kind.bit_width]])
    if pa.types.is_floating(kind):
        return dice.choice(REAL)
    if pa.types.is_list(kind):
        return []
    return dice.choice(WORDS)


def _file(row: dict[str, Any], dice: random.Random) -> bytes:
    """Return a row as a summary, sometimes with a wrong table.

    It may have one column less or more, a column of another type, or twice as many rows.
    """
    table = pa.Table.from_pylist([row] * dice.choice((1, 1, 1, 2)), schema=SCHEMA)
    if dice.random() < 0.05:
        name = dice.choice(SCHEMA.names)
        match dice.randrange(4):
            case 0:
                table = table.drop_columns([name])
            case 1:
                table = table.append_column("more", pa.array([1] * len(table)))
            case 2:
                table = table.set_column(SCHEMA.get_field_index(name), name, pa.array(["text"] * len(table)))
            case 3:
                table = table.set_column(SCHEMA.get_field_index(name), name, pa.array([[{"label": 1.5}]] * len(table)))
    out = io.BytesIO()
    with pq.ParquetWriter(out, table.schema, compression="zstd", store_schema=dice.random() < 0.1) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({ABOUT: str(dice.choice((SUMMARY_VERSION, SUMMARY_VERSION, SUMMARY_VERSION, 2, 3)))})
    return out.getvalue()
