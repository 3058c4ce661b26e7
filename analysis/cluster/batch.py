"""All summaries of a job in one file: read once from wherever they lie, checked, in the order of their sources.

The file's name begins with the hash of its bytes: Parquet has no checksum of its own, and a bit that flips in it reads as another number.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sawtooth.analysis.cluster.mapping import is_summary
from sawtooth.analysis.cluster.places import Place
from sawtooth.analysis.cluster.summary import SCHEMA, unpack
from sawtooth.ingest.errors import SawtoothError, UsageError
from sawtooth.ingest.files import commit, draft
from sawtooth.ingest.schema import DataFolder

AT_A_TIME = 16  # objects of a store, whose answer takes milliseconds
NAMED_BY, BY_CONTENT = "sawtooth_named_by", "content"
FOOTER_BYTES = 1 << 16  # the metadata stand among a Parquet file's last
ROWS = 256  # of a row group: a few MB in memory


def gather(place: Place, folder: DataFolder) -> str:
    """Write the summaries in ``place`` into one file of the data folder, and return its id: the start of the SHA-256 of its bytes.

    Raises UsageError where there is none, and SawtoothError for a file that is no summary.
    """
    names = sorted(name for name in place.names() if is_summary(name))
    if not names:
        raise UsageError(f"There are no summaries in {place.url}. Make them with sawtooth map.")
    with draft(folder.recordings) as temporary:
        with (
            ThreadPoolExecutor(AT_A_TIME) as pool,
            pq.ParquetWriter(temporary, SCHEMA, compression="zstd", store_schema=False) as writer,
        ):
            tables = _tables(pool, place, names)
            while some := list(islice(tables, ROWS)):
                writer.write_table(pa.concat_tables(some))
            writer.add_key_value_metadata({NAMED_BY: BY_CONTENT})
        name = _hash_of(temporary)
        commit(temporary, folder.summaries_file(name))
    return name


def is_whole(path: Path) -> bool:
    """Tell whether a file of ``gather`` is as it was written; of older versions' files nothing is known."""
    if path.name.startswith(_hash_of(path)):
        return True
    with path.open("rb") as file:
        file.seek(-min(FOOTER_BYTES, path.stat().st_size), os.SEEK_END)
        return NAMED_BY.encode() not in file.read()


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _tables(pool: Executor, place: Place, names: Iterable[str]) -> Iterator[pa.Table]:
    left = iter(names)
    while some := list(islice(left, ROWS)):
        yield from map(_unpacked, some, pool.map(place.read, some))


def _unpacked(name: str, content: bytes) -> pa.Table:
    try:
        return unpack(content)
    except SawtoothError as error:
        raise SawtoothError(f"{name}: {error}") from error
