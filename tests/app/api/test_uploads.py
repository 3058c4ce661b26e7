"""Tests of uploads: streamed, limited, and removed if the sender disconnects."""

import asyncio
import os
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sawtooth.app.api import routes, uploads
from sawtooth.app.jobs.leftovers import MAX_UPLOAD_PAUSE_S
from sawtooth.app.settings import Settings
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.schema import DataFolder


@pytest.fixture
def options(monkeypatch, tmp_path) -> Settings:
    options = Settings(DataFolder(tmp_path / "data"), upload_cap_bytes=5_000_000, disk_reserve_bytes=1)
    monkeypatch.setattr(uploads, "settings", lambda: options)
    return options


@pytest.fixture
def client(options) -> TestClient:
    return TestClient(Starlette(routes=routes()))


def _left(options: Settings) -> list[Path]:
    return sorted(options.data.uploads.iterdir()) if options.data.uploads.exists() else []


def test_an_upload_is_stored_unchanged_under_a_generated_name(client, options) -> None:
    content = os.urandom(3_000_000)
    answer = client.put("/api/v1/uploads?name=..%2F..%2Fetc%2Fpasswd%0D%0Ax.json", content=content)
    assert answer.status_code == 201
    body = answer.json()
    assert body["bytes"] == 3_000_000
    assert "/" not in body["name"]
    assert "\n" not in body["name"]
    assert uploads.claim_upload(body["upload"]).read_bytes() == content
    assert [p.name for p in _left(options)] == [body["upload"]]


def test_an_empty_upload_is_stored_for_the_reader_to_judge(client) -> None:
    assert client.put("/api/v1/uploads?name=empty.json", content=b"").json()["bytes"] == 0


def test_a_file_over_the_limit_is_refused_before_and_during_upload(client, options) -> None:
    assert client.put("/api/v1/uploads", content=b"x" * 5_000_001).status_code == 413

    def chunks():
        for _ in range(60):
            yield b"x" * 100_000

    answer = client.put("/api/v1/uploads", content=chunks())
    assert answer.status_code == 413
    assert "sawtooth ingest" in answer.json()["error"]["sentence"]
    assert _left(options) == []


def test_a_full_disk_is_reported_and_no_file_stays(client, options, monkeypatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda path: usage)
    answer = client.put("/api/v1/uploads", content=b"x" * 2000)
    assert answer.status_code == 507
    assert "2.00\u00a0kB" in answer.json()["error"]["sentence"]
    assert _left(options) == []


def test_a_third_upload_is_asked_to_wait(client, monkeypatch) -> None:
    monkeypatch.setattr(uploads, "_running", uploads.MAX_UPLOADS)
    answer = client.put("/api/v1/uploads", content=b"x")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"


def _request_scope() -> dict:
    return {
        "type": "http",
        "method": "PUT",
        "path": "/api/v1/uploads",
        "headers": [],
        "query_string": b"name=a",
        "path_params": {},
    }


@pytest.mark.parametrize("ending", ["disconnect", "silence"])
def test_a_vanished_or_silent_sender_leaves_no_file(options, monkeypatch, ending) -> None:
    from starlette.requests import Request

    monkeypatch.setattr(uploads, "IDLE_SECONDS", 0.05)
    messages = [{"type": "http.request", "body": b"x" * 2_000_000, "more_body": True}]
    if ending == "disconnect":
        messages.append({"type": "http.disconnect"})

    async def receive() -> dict:
        if messages:
            return messages.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    answer = asyncio.run(uploads.put(Request(_request_scope(), receive)))
    assert answer.status_code == {"disconnect": 400, "silence": 408}[ending]
    assert _left(options) == []
    assert uploads._running == 0


def test_only_complete_uploads_can_be_claimed(options) -> None:
    options.data.create()
    with pytest.raises(UsageError):
        uploads.claim_upload("../../etc/passwd")
    with pytest.raises(NotFoundError):
        uploads.claim_upload("0" * 32)


def test_uploads_without_a_claim_for_an_hour_are_removed(options) -> None:
    folder = options.data.create().uploads
    old, new, job = folder / ("a" * 32), folder / ("b" * 32), folder / "job-x"
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    job.mkdir()
    os.utime(old, (1000, 1000))
    os.utime(new, (4000, 4000))
    uploads.remove_stale_uploads(folder, clock=lambda: 1000 + MAX_UPLOAD_PAUSE_S + 1)
    assert _left(options) == [new, job]
