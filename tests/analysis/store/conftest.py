"""Fixtures of the tests of a viewer's SQL: a data folder with a trace and telemetry."""

from __future__ import annotations

import pytest

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT

BUNDLED = ROOT / "sample_traces" / "gpt"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFolder, Manifest]:
    folder = DataFolder(tmp_path_factory.mktemp("query") / "data").create()
    files = [BUNDLED / "trace.json.gz", BUNDLED / "nvml.jsonl"]
    return folder, ingest_into_runs(folder, [(file, file.name) for file in files]).runs[0]


@pytest.fixture(scope="module")
def folder(store: tuple[DataFolder, Manifest]) -> DataFolder:
    return store[0]


@pytest.fixture(scope="module")
def trace(store: tuple[DataFolder, Manifest]) -> str:
    return store[1].traces[0].id
