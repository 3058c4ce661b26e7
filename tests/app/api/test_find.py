"""Tests of the search of every page: runs, and findings and kernels of an analysed run."""

from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sawtooth.analysis.result_cache import result_of, stairs_of
from sawtooth.app.api import routes
from sawtooth.app.library import library
from sawtooth.app.words import advice
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import RECORDINGS
from tests.support.prepared import prepared


@pytest.fixture
def client(app_data: DataFolder) -> TestClient:
    return TestClient(Starlette(routes=routes()))


def entries(client: TestClient, run: str) -> list[list[str]]:
    return client.get(f"/api/v1/find?run={run}").json()["entries"]


def test_an_analysed_run_has_its_findings_and_kernels(client: TestClient, app_data: DataFolder) -> None:
    run = prepared(app_data, RECORDINGS / "gpt_small" / "trace.json.gz")
    runs = [["Run", run.name, f"/verdict?run={run.id}"]]
    for remaining in app_data.derived.glob(f"{run.id}.*.msgpack"):
        remaining.unlink()
    assert entries(client, run.id) == runs  # Analysing the run here would take seconds.
    result = result_of(run, library())
    found = entries(client, run.id)
    assert found[:1] == runs
    numbered = advice.numbered(result)
    assert [name for kind, name, _ in found if kind.startswith("Finding")] == [finding.title for _, finding in numbered]
    kernels = [(name, parse_qs(urlsplit(address).query)) for kind, name, address in found if kind == "Kernel"]
    assert kernels and all(query["run"] == [run.id] and len(query["name"][0]) <= 200 for _, query in kernels)
    assert len({name for name, _ in kernels}) == len(kernels)

    stairs = stairs_of(library(), result)
    assert stairs is not None
    opened = {
        name: parse_qs(urlsplit(address).query).get("open")
        for kind, name, address in entries(client, run.id)
        if "Finding" in kind
    }
    title = next(finding.title for _, finding in numbered if finding.rule == stairs.changes[0])
    assert opened[title] == ["1"]


@pytest.mark.parametrize("asked", ["", "0" * 16, "../x"])
def test_without_a_known_run_only_runs_are_listed(client: TestClient, app_data: DataFolder, asked: str) -> None:
    run = prepared(app_data, RECORDINGS / "gpt_small" / "trace.json.gz")
    assert entries(client, asked) == [["Run", run.name, f"/verdict?run={run.id}"]]
