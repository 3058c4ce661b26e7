"""Analysed runs kept in files beside the derived ones, so that a page only reads what the ingest child found.

A file is MessagePack, decoded into the declared types and nothing else: no code is ever loaded from it.
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

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.calibration import calibrated
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.version import analysis_code
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest, is_id
from sawtooth.ingest.schema import DataFolder, write_atomically
from sawtooth.ingest.typed import from_msgpack

RESULT = "result.msgpack"  # of a kept file: the analysed run
CHECKSUM_BYTES = 8  # a flipped bit of a number decodes as well as the number


class _Stored(msgspec.Struct, frozen=True):
    """``lead`` is its position among the ranks: screens compare it by identity."""

    result: RunResult
    lead: int | None


def result_of(manifest: Manifest, library: Library) -> RunResult:
    """Return the analysis of ``manifest``: the kept one, else a new one, which is kept. Raises as ``analyse``."""
    if (kept := kept_result(manifest, library.folder)) is not None:
        return kept
    result = analyse(manifest, library)
    remove_kept(library.folder, manifest.id)
    with contextlib.suppress(OSError):  # a full disk costs time, not the page
        write_atomically(kept_file(library.folder, manifest, RESULT), dump(result))
    return result


def kept_result(manifest: Manifest, folder: DataFolder) -> RunResult | None:
    """Return the kept analysis of ``manifest``, None where there is none, or one of older code or other inputs."""
    with contextlib.suppress(OSError, SawtoothError):
        return load(kept_file(folder, manifest, RESULT).read_bytes(), manifest)
    return None


def kept_file(folder: DataFolder, manifest: Manifest, what: str) -> Path:
    """Return where something of the analysis is kept: it depends on the recordings, on what the user told, on what was measured of GPUs here and on our code."""
    inputs = msgspec.json.encode((manifest.recordings, manifest.facts, analysis_code())) + calibrated(folder)
    inputs += (manifest.summaries or "").encode()
    return folder.derived / f"{manifest.id}.{hashlib.sha256(inputs).hexdigest()[:12]}.{what}"


def analysed_before(folder: DataFolder, manifest: Manifest) -> bool:
    """Tell whether an analysis of ``manifest`` was kept, and is out of date: of older code, or of other inputs."""
    return not kept_file(folder, manifest, RESULT).exists() and any(folder.derived.glob(f"{manifest.id}.*.{RESULT}"))


def remove_kept(folder: DataFolder, run_id: str) -> None:
    """Remove what is kept of a run's analysis."""
    if is_id(run_id):
        for old in folder.derived.glob(f"{run_id}.*"):
            if old.suffix in (".json", ".msgpack"):
                old.unlink(missing_ok=True)


def dump(result: RunResult) -> bytes:
    """Return the result as bytes."""
    lead = next((i for i, rank in enumerate(result.ranks) if rank is result.lead), None)
    return sealed(msgspec.msgpack.encode(_Stored(replace(result, lead=None), lead), enc_hook=_plain))


def load(data: bytes, manifest: Manifest) -> RunResult:
    """Return the result in ``data``, of ``manifest`` as it is now. Raises SawtoothError for bytes that ``dump`` did not write."""
    try:
        stored = from_msgpack(unsealed(data), _Stored, dec_hook=_rich)
        lead = stored.result.ranks[stored.lead] if stored.lead is not None else None
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError) as error:
        raise SawtoothError("The kept analysis of this run is damaged.") from error
    return replace(stored.result, manifest=manifest, lead=lead)


def sealed(content: bytes) -> bytes:
    """Return ``content`` behind its checksum."""
    return _checksum(content) + content


def unsealed(data: bytes) -> bytes:
    """Return what ``sealed`` was given. Raises ValueError where a bit has flipped since."""
    content = data[CHECKSUM_BYTES:]
    if data[:CHECKSUM_BYTES] != _checksum(content):
        raise ValueError("a bit has flipped")
    return content


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=CHECKSUM_BYTES).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return [(str(name), *_column(value[name])) for name in value.columns]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):  # of constants, which nobody may change
        return dict(value)
    if value is pd.NA or value is pd.NaT:
        return None
    raise TypeError(f"{type(value).__name__} is no part of an analysed run.")


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
    raise NotImplementedError(kind)  # msgspec's own way to hear of a type that nobody decodes


def _series(dtype: str, data: Any) -> pd.Series:
    if isinstance(data, bytes):
        return pd.Series(np.frombuffer(data, dtype).copy())
    return pd.Series(data, dtype=dtype)
