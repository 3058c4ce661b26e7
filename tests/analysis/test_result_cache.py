"""Tests of the result cache: a cached analysis has the same types and numbers.

The cache contains no executable data.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

from sawtooth.analysis import result_cache as result_store
from sawtooth.analysis.result_cache import WORK, cached_file, cached_result, dump, load, result_of, work_of
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest, UserFacts
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT
from tests.support.prepared import prepared

# one rank with telemetry, two ranks that wait for each other, findings with edits, host only
RUNS = ("sample_traces/gpt", "sample_traces/resnet_starved", "tests/recordings/ddp_straggler", "tests/recordings/mlp_eager")


def ingested(folder: DataFolder, where: str) -> Manifest:
    paths = sorted(p for p in (ROOT / where).iterdir() if p.name.endswith((".json.gz", ".jsonl")))
    return ingest_into_runs(folder, [(path, path.name) for path in paths]).runs[0]


def assert_same(a: object, b: object, where: str = "result") -> None:
    """Compare two results at every depth; numpy's numbers may have become Python's."""
    if isinstance(a, pd.DataFrame):
        pd.testing.assert_frame_equal(a, b, obj=where)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, where
        np.testing.assert_array_equal(a, b, where)
    elif is_dataclass(a):
        assert type(a) is type(b), where
        for field in fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name), f"{where}.{field.name}")
    elif isinstance(a, Mapping):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, list | tuple):
        assert (type(a), len(a)) == (type(b), len(b)), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}[{i}]")
    elif pd.isna(a):
        assert pd.isna(b), where
    else:
        assert a == b, where


@pytest.mark.sweep(2)
@pytest.mark.parametrize("where", RUNS)
def test_a_cached_analysis_equals_the_computed_one(where: str, tmp_path: Path) -> None:
    folder = DataFolder(tmp_path).create()
    manifest, library = ingested(folder, where), Library(folder)
    result = analyse(manifest, library)
    remaining = load(dump(result), manifest)
    assert_same(result, remaining)
    assert any(remaining.lead is rank for rank in remaining.ranks)  # Screens ask which rank is the lead, by identity.
    assert json.dumps(report_json(remaining)) == json.dumps(report_json(result))
    library.close()


@pytest.fixture
def small(tmp_path: Path) -> tuple[Manifest, Library]:
    folder = DataFolder(tmp_path).create()
    recording = ROOT / "tests/recordings/mlp_eager"
    return prepared(folder, recording / "trace.json.gz", recording / "nvml.jsonl"), Library(folder)


def test_a_run_is_analysed_again_only_after_an_edit(small: tuple[Manifest, Library], monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, library = small
    result_of(manifest, library)
    renamed = msgspec.structs.replace(manifest, name="another name")
    reported = msgspec.structs.replace(manifest, facts=UserFacts(step_time_ms=5.0))
    with monkeypatch.context() as patched:
        patched.setattr(result_store, "analyse", lambda *_: pytest.fail("analysed again"))
        assert result_of(renamed, library).manifest.name == "another name"
    assert result_of(reported, library).metrics["best_step_time_ms"].value == 5.0
    assert cached_result(manifest, library.folder) is None  # The older file is gone.
    monkeypatch.setattr(result_store, "analysis_code", lambda: "newer")
    assert cached_result(reported, library.folder) is None
    library.close()


def test_a_damaged_cache_file_is_not_used(small: tuple[Manifest, Library]) -> None:
    manifest, library = small
    first = result_of(manifest, library)
    file = next(library.folder.derived.glob("*.result.msgpack"))
    for damage in (b"", b"\x80", b"\xc1", pickle.dumps({"result": None, "lead": 0}), b"{}"):
        with pytest.raises(SawtoothError, match="damaged"):
            load(damage, manifest)
        file.write_bytes(damage)
        assert cached_result(manifest, library.folder) is None
    assert_same(first, result_of(manifest, library))
    assert cached_result(manifest, library.folder) is not None
    library.close()


def test_a_truncated_cache_file_is_not_used(small: tuple[Manifest, Library]) -> None:
    manifest, library = small
    complete = dump(result_of(manifest, library))
    for end in range(0, len(complete), 997):
        with pytest.raises(SawtoothError, match="damaged"):
            load(complete[:end], manifest)
    library.close()


def test_a_large_run_is_analysed_in_the_background(app_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from sawtooth.app.runs import card as run_card
    from tests.support.pages import opened, words_of

    manifest = ingested(app_data, "tests/recordings/mlp_eager")
    monkeypatch.setattr(run_card, "INLINE_BYTES", 1)
    assert "This run is being analysed" in words_of(opened("verdict", manifest.id))
    for thread in threading.enumerate():
        if thread.name.startswith("job-"):
            thread.join(120)
    assert cached_result(manifest, app_data) is not None
    assert "being analysed" not in words_of(opened("verdict", manifest.id))


def test_a_flipped_bit_is_noticed(small: tuple[Manifest, Library]) -> None:
    # A wrong number could be decoded without an error. The checksum shows it, and the file is made again.
    manifest, library = small
    content = bytearray(dump(result_of(manifest, library)))
    for at in (0, 9, len(content) // 3, len(content) // 2, len(content) - 1):
        content[at] ^= 0x10
        with pytest.raises(SawtoothError, match="damaged"):
            load(bytes(content), manifest)
        content[at] ^= 0x10
    assert load(bytes(content), manifest).manifest == manifest


@pytest.mark.parametrize("where", RUNS)
def test_stored_gpu_work_is_the_computed_one(where: str, tmp_path: Path) -> None:
    folder = DataFolder(tmp_path).create()
    with Library(folder) as library:
        result = result_of(ingested(folder, where), library)
        computed = work_of(library, result)
        path = cached_file(folder, result.manifest, WORK)
        assert (computed is None) == (result.lead is None) and path.exists() == (computed is not None)
        stored = work_of(library, result)
        assert computed is None or (stored is not computed and len(computed.rows) > 0)
        assert_same(computed, stored)
        if path.exists():
            path.write_bytes(path.read_bytes()[:-1])  # A damaged file is computed again.
            assert_same(computed, work_of(library, result))
