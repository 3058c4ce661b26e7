"""All summaries of a job in one file: read once from wherever they lie, checked, in the order of their sources."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from sawtooth.analysis.cluster.mapping import is_summary
from sawtooth.analysis.cluster.places import Place
from sawtooth.analysis.cluster.summary import SCHEMA, unpack
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.files import commit, draft
from sawtooth.ingest.schema import DataFolder

AT_A_TIME = 16  # objects of a store, whose answer takes milliseconds
ROWS = 256  # of a row group: a few MB in memory


def gather(place: Place, folder: DataFolder) -> str:
    """Write the summaries in ``place`` into one file of the data folder, and return its id: the start of a hash of what it holds.

    Raises UsageError where there is none, and SawtoothError for a file that is no summary.
    """
    names = sorted(name for name in place.names() if is_summary(name))
    if not names:
        raise UsageError(f"There are no summaries in {place.url}. Make them with sawtooth map.")
    content = hashlib.sha256()
    with draft(folder.recordings) as temporary:
        with pq.ParquetWriter(temporary, SCHEMA, compression="zstd", store_schema=False) as writer:
            tables = _tables(place, names)
            while some := list(islice(tables, ROWS)):
                table = pa.concat_tables(some)
                for row in zip(*(table[c].to_pylist() for c in ("id", "source", "state", "device")), strict=True):
                    content.update(repr(row).encode())
                writer.write_table(table)
        name = content.hexdigest()[:16]
        commit(temporary, folder.summaries_file(name))
    return name


def _tables(place: Place, names: Iterable[str]) -> Iterator[pa.Table]:
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        left = iter(names)
        while some := list(islice(left, ROWS)):
            yield from map(unpack, pool.map(place.read, some))
