"""All summaries of a job in one file, checked and ordered by source.

The file's name begins with the hash of its bytes. The Parquet file has no page checksums, so a flipped bit would be read as
another number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sawtooth.analysis.cluster.mapping import is_summary
from sawtooth.analysis.cluster.storage import Storage
from sawtooth.analysis.cluster.summary import SCHEMA, unpack
from sawtooth.ingest.errors import SawtoothError, UsageError
from sawtooth.ingest.files import commit, draft_file
from sawtooth.ingest.schema import DataFolder

PARALLEL_READS = 16  # Parallel reads, because each read waits several milliseconds for an object store.
ROW_GROUP_SIZE = 256  # Number of summaries in a row group. They take a few MB in memory.


def gather(storage: Storage, folder: DataFolder) -> str:
    """Write the summaries in ``storage`` into one file of the data folder, and return its id.

    The id is the start of the SHA-256 of the file's bytes. Raises UsageError if there are no summaries, and SawtoothError for a
    file that is not a summary.
    """
    names = sorted(name for name in storage.names() if is_summary(name))
    if not names:
        raise UsageError(f"There are no summaries in {storage.url}. Make them with sawtooth map.")
    with draft_file(folder.recordings) as temporary:
        with (
            ThreadPoolExecutor(PARALLEL_READS) as pool,
            pq.ParquetWriter(temporary, SCHEMA, compression="zstd", store_schema=False) as writer,
        ):
            tables = _tables(pool, storage, names)
            while batch := list(islice(tables, ROW_GROUP_SIZE)):
                writer.write_table(pa.concat_tables(batch))
        name = _hash_of(temporary)
        commit(temporary, folder.summaries_file(name))
    return name


def is_intact(path: Path) -> bool:
    """Return whether the bytes of a file that ``gather`` wrote still have the hash in its name."""
    return path.name.startswith(_hash_of(path))


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _tables(pool: Executor, storage: Storage, names: Iterable[str]) -> Iterator[pa.Table]:
    remaining = iter(names)
    while batch := list(islice(remaining, ROW_GROUP_SIZE)):
        yield from map(_unpack, batch, pool.map(storage.read, batch))


def _unpack(name: str, content: bytes) -> pa.Table:
    try:
        return unpack(content)
    except SawtoothError as error:
        raise SawtoothError(f"{name}: {error}") from error
