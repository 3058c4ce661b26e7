"""Tests of the HTTP API: its answers, and that paths come from manifests only."""

import gzip

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sawtooth.app.api import routes
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.sampler.segments import SegmentWriter
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import three_steps

START = 1_800_000_000_000_000_000
TRACE = gzip.compress(three_steps().json())


@pytest.fixture
def run(app_data: DataFolder, tmp_path) -> Manifest:
    path = tmp_path / "trace"
    path.write_bytes(TRACE)
    return ingest_into_runs(app_data, [(path, 'na"me;\r\n\u202eé.json.gz')]).runs[0]


@pytest.fixture
def client(app_data: DataFolder) -> TestClient:
    return TestClient(Starlette(routes=routes()))


def test_runs_are_listed_and_shown_as_their_manifests(client: TestClient, run: Manifest) -> None:
    assert [r["id"] for r in client.get("/api/v1/runs").json()["runs"]] == [run.id]
    assert client.get(f"/api/v1/runs/{run.id}").json()["recordings"][0]["id"] == run.recordings[0].id


def test_the_source_is_returned_unchanged_under_a_safe_name(client: TestClient, run: Manifest) -> None:
    answer = client.get(f"/api/v1/runs/{run.id}/trace")
    assert answer.status_code == 200
    assert gzip.decompress(answer.content) == gzip.decompress(TRACE)
    disposition = answer.headers["content-disposition"]
    assert "attachment" in disposition
    assert not set(disposition) & set("\r\n\u202e")
    part = client.get(f"/api/v1/runs/{run.id}/trace", headers={"range": "bytes=0-1"})
    assert (part.status_code, part.content) == (206, b"\x1f\x8b")


def test_the_report_equals_that_of_the_command_line(client: TestClient, run: Manifest) -> None:
    report = client.get(f"/api/v1/runs/{run.id}/report").json()
    assert report["report_version"] == 1
    assert report["run"]["id"] == run.id
    assert report["metrics"]["step_time_ms"]["value"] == pytest.approx(0.1)  # Step ends are 100 us apart.


@pytest.mark.parametrize("path", ["0" * 16, "..%2f..%2fetc%2fpasswd", "not-an-id", "' OR 1=1", "0" * 5000])
@pytest.mark.parametrize("tail", ["", "/trace", "/report"])
def test_an_unknown_run_is_not_found(client: TestClient, path: str, tail: str) -> None:
    answer = client.get(f"/api/v1/runs/{path}{tail}")
    assert answer.status_code == 404
    assert "/tmp" not in answer.text


def test_a_missing_source_is_reported(client: TestClient, run: Manifest, app_data: DataFolder) -> None:
    assert client.get(f"/api/v1/runs/{run.id}/trace?rank=7").status_code == 404
    app_data.source_file(run.recordings[0].id).unlink()
    assert "not stored" in client.get(f"/api/v1/runs/{run.id}/trace").json()["error"]["sentence"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"files": 3}', b'{"files": []}', b'{"files": [{"upload": "../x", "name": "y"}]}', b"\xff\xfe", b"[" * 60_000],
)
def test_an_invalid_request_is_refused_with_a_sentence(client: TestClient, body: bytes) -> None:
    answer = client.post("/api/v1/jobs", content=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["sentence"]


def test_an_upload_becomes_a_run(client: TestClient, app_data: DataFolder) -> None:
    import threading

    upload = client.put("/api/v1/uploads?name=mine.json.gz", content=TRACE).json()["upload"]
    job = client.post("/api/v1/jobs", json={"files": [{"upload": upload, "name": "mine.json.gz"}]}).json()["job"]
    for thread in threading.enumerate():
        if thread.name == f"job-{job}":
            thread.join(60)
    ended = client.get(f"/api/v1/jobs/{job}").json()
    assert (ended["stage"], ended["error"]) == ("done", None)
    assert app_data.read_manifest(ended["run_ids"][0]).name == "mine"
    assert client.delete("/api/v1/jobs/unknown").status_code == 404


def test_typed_text_is_cleaned(run: Manifest) -> None:
    from sawtooth.app.page.runs.editing import edited

    changed = edited(run, run, " new\u202e name \n", "a, b,, a,\x00c", "notes")
    assert changed.name == "new  name"
    assert changed.tags == ["a", "b", "c"]
    assert edited(run, run, "  ", "", "").name == run.name
    assert changed.id == run.id


def test_a_running_session_returns_numbers(client: TestClient, app_data: DataFolder) -> None:
    meta = {"v": 1, "session": "s", "host": "node7", "started_m": 0, "started_w": START, "interval_ns": 10**8, "name": "job"}
    devices = [{"device": 0, "name": "NVIDIA H200", "uuid": "GPU-0", "memory_bytes": 100e9}]
    writer = SegmentWriter(app_data.create().live / "s", {**meta, "columns": ["util_pct"], "devices": devices})
    for i in range(50):
        writer.write({"k": "tick", "m": i * 10**8, "w": START + i * 10**8, "g": [[40.0]]})
    pace = {"step": 500, "p50_ms": 10.0, "p95_ms": 12.0, "per_s": 98.0, "samples": 32, "flops": None}
    writer.write({"k": "pace", "m": 49 * 10**8, "w": START + 49 * 10**8, **pace})
    writer.sync(0)
    (listed,) = client.get("/api/v1/sessions").json()["sessions"]
    assert (listed["id"], listed["host"], listed["live"]) == ("s", "node7", True)
    now = client.get("/api/v1/sessions/s").json()
    assert now["gpus"][0]["means"] == {"util_pct": 40.0}
    assert now["steps"] == {
        "step": 500, "p50_ms": 10.0, "p95_ms": 12.0, "steps_per_s": 98.0, "samples_per_s": 3136.0, "mfu": None, "silent_s": None,
    }  # fmt: skip
    writer.close()


@pytest.mark.parametrize("name", ["none", "..%2f..", "x" * 3000])
def test_an_unknown_session_is_not_found(client: TestClient, name: str) -> None:
    assert client.get(f"/api/v1/sessions/{name}").status_code == 404
