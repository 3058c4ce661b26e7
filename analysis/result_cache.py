"""The result cache: analysed runs in files next to the derived files, so that pages need no analysis.

The files are MessagePack and are only decoded into declared types, so they cannot execute code.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from sawtooth.analysis.findings.gpu_work import GpuWork, gpu_work
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.staircase import Staircase, staircase_of
from sawtooth.analysis.store.calibration import calibration_bytes
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.version import analysis_code
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest, is_id
from sawtooth.ingest.schema import DataFolder, write_atomically
from sawtooth.ingest.typed import from_msgpack

# Ends of file names: the analysed run, its staircase with every choice of changes, and the GPU work of its lead rank.
RESULT, STAIRS, WORK = "result.msgpack", "stairs.msgpack", "work.msgpack"
CHECKSUM_BYTES = 8  # Without a checksum, a number with a flipped bit would decode without an error.


class _Stored(msgspec.Struct, frozen=True):
    """A result without its ``lead``, and the lead's position among the ranks.

    Screens compare the lead by identity, so it must be one of the decoded ranks.
    """

    result: RunResult
    lead: int | None


class _StoredStairs(msgspec.Struct, frozen=True):
    """A staircase, or None if the run has none."""

    stairs: Staircase | None


def result_of(manifest: Manifest, library: Library) -> RunResult:
    """Return the analysis of ``manifest`` from the cache, else a new one, which is cached.

    Raises the same errors as ``analyse``.
    """
    if (cached := cached_result(manifest, library.folder)) is not None:
        return cached
    result = analyse(manifest, library)
    remove_cached(library.folder, manifest.id)
    with contextlib.suppress(OSError):  # With a full disk, the next request takes longer, but the page still works.
        write_atomically(cached_file(library.folder, manifest, RESULT), dump(result))
    return result


def stairs_of(library: Library, result: RunResult) -> Staircase | None:
    """Return the staircase of ``result`` with every choice, from the cache if possible."""
    path = cached_file(library.folder, result.manifest, STAIRS)
    with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
        return from_msgpack(without_checksum(path.read_bytes()), _StoredStairs).stairs
    stairs = staircase_of(library, result)
    with contextlib.suppress(OSError):
        write_atomically(path, with_checksum(msgspec.msgpack.encode(_StoredStairs(stairs))))
    return stairs


def work_of(library: Library, result: RunResult) -> GpuWork | None:
    """Return the GPU work of the lead rank, with the changes of all findings, from the cache if possible.

    None for a run without a rank. Raises the errors of ``Library.open``.
    """
    if result.lead is None:
        return None
    path = cached_file(library.folder, result.manifest, WORK)
    with contextlib.suppress(OSError, ValueError, TypeError, msgspec.MsgspecError):
        return from_msgpack(without_checksum(path.read_bytes()), GpuWork, dec_hook=_rich)
    with open_rank(library, result.lead, sums=True) as rank:
        work = gpu_work(rank, result.findings)
    with contextlib.suppress(OSError):
        write_atomically(path, with_checksum(msgspec.msgpack.encode(work, enc_hook=_encode)))
    return work


def cached_result(manifest: Manifest, folder: DataFolder) -> RunResult | None:
    """Return the cached analysis of ``manifest``; None without one for the current code and inputs."""
    with contextlib.suppress(OSError, SawtoothError):
        return load(cached_file(folder, manifest, RESULT).read_bytes(), manifest)
    return None


def cached_file(folder: DataFolder, manifest: Manifest, kind: str) -> Path:
    """Return the path of a cached part of the analysis; ``kind`` is RESULT, STAIRS or WORK.

    Its name depends on the recordings, the user's facts, the calibration of this machine's GPUs and our code.
    """
    inputs = msgspec.json.encode((manifest.recordings, manifest.facts, analysis_code())) + calibration_bytes(folder)
    inputs += (manifest.summaries or "").encode()
    return folder.derived / f"{manifest.id}.{hashlib.sha256(inputs).hexdigest()[:12]}.{kind}"


def analysed_before(folder: DataFolder, manifest: Manifest) -> bool:
    """Return whether an analysis of ``manifest`` was cached for older code or other inputs."""
    return not cached_file(folder, manifest, RESULT).exists() and any(folder.derived.glob(f"{manifest.id}.*.{RESULT}"))


def remove_cached(folder: DataFolder, run_id: str) -> None:
    """Remove the cached files of a run's analysis."""
    if is_id(run_id):
        for old in folder.derived.glob(f"{run_id}.*"):
            if old.suffix in (".json", ".msgpack"):
                old.unlink(missing_ok=True)


def dump(result: RunResult) -> bytes:
    """Return the result as bytes."""
    lead = next((i for i, rank in enumerate(result.ranks) if rank is result.lead), None)
    return with_checksum(msgspec.msgpack.encode(_Stored(replace(result, lead=None), lead), enc_hook=_encode))


def load(data: bytes, manifest: Manifest) -> RunResult:
    """Return the result in ``data`` with the current ``manifest``.

    Raises SawtoothError for bytes that ``dump`` did not write.
    """
    try:
        stored = from_msgpack(without_checksum(data), _Stored, dec_hook=_rich)
        lead = stored.result.ranks[stored.lead] if stored.lead is not None else None
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError) as error:
        raise SawtoothError("The cached analysis of this run is damaged.") from error
    return replace(stored.result, manifest=manifest, lead=lead)


def with_checksum(content: bytes) -> bytes:
    """Return ``content`` with its checksum in front."""
    return _checksum(content) + content


def without_checksum(data: bytes) -> bytes:
    """Return the content that ``with_checksum`` stored. Raises ValueError if the checksum is wrong."""
    content = data[CHECKSUM_BYTES:]
    if data[:CHECKSUM_BYTES] != _checksum(content):
        raise ValueError("the checksum is wrong")
    return content


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=CHECKSUM_BYTES).digest()


def _encode(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return [(str(name), *_column(value[name])) for name in value.columns]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):  # A read-only mapping of constants is a Mapping, but not a dict.
        return dict(value)
    if value is pd.NA or value is pd.NaT:
        return None
    raise TypeError(f"{type(value).__name__} is not part of an analysed run.")


def _column(values: pd.Series) -> tuple[str, Any]:
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iufb":
        return values.dtype.str, values.to_numpy().tobytes()
    return str(values.dtype), [None if pd.isna(v) else v for v in values.tolist()]


def _rich(kind: type, value: Any) -> Any:
    if kind is pd.DataFrame:
        return pd.DataFrame({name: _series(dtype, data) for name, dtype, data in value})
    origin: Callable[..., Any] = getattr(kind, "__origin__", kind)
    if origin is np.ndarray:
        dtype, data = value
        return np.frombuffer(data, dtype).copy()
    raise NotImplementedError(kind)  # msgspec expects this error for an unknown type.


def _series(dtype: str, data: Any) -> pd.Series:
    if isinstance(data, bytes):
        return pd.Series(np.frombuffer(data, dtype).copy())
    return pd.Series(data, dtype=dtype)
