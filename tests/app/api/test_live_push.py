"""Tests of pushed sessions: acknowledged once on disk, at most once, resumable and limited."""

from __future__ import annotations

import os
import zlib

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from sawtooth.app.api import live, routes
from sawtooth.app.server.access import AccessMiddleware
from sawtooth.app.server.push import MASK, command_to_print, command_to_show, push_command, push_token
from sawtooth.app.settings import Settings
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.receiver import Receiver, RefusedError, clock_offset_ns, is_pushed
from sawtooth.ingest.sampler.options import build_parser, find_push_token
from sawtooth.ingest.sampler.segments import encode_line
from sawtooth.ingest.schema import DataFolder

pytestmark = pytest.mark.usefixtures("push_threads_end")
SESSION = "20260101T000000Z-node-abc123"
PATH = f"/api/v1/live/{SESSION}"


@pytest.fixture
def options(monkeypatch, tmp_path) -> Settings:
    options = Settings(DataFolder(tmp_path / "data"), disk_reserve_bytes=1)
    options.data.create()
    monkeypatch.delenv("SAWTOOTH_PUSH_TOKEN", raising=False)
    monkeypatch.setattr(live, "settings", lambda: options)
    monkeypatch.setattr(live, "rate_limit", live.BatchRateLimit())
    return options


@pytest.fixture
def client(options) -> TestClient:
    app = Starlette(routes=routes(), middleware=[Middleware(AccessMiddleware, settings=options)])
    bearer = {"authorization": f"Bearer {push_token(options.data.root)}"}
    return TestClient(app, base_url="http://localhost:8501", headers=bearer)


def send(
    client: TestClient, segment: int, offset: int, body: bytes, *, crc: str | None = None, path: str = PATH, **headers: str
):
    headers["X-Content-CRC32"] = crc or f"{zlib.crc32(body):08x}"
    return client.post(f"{path}?segment={segment}&offset={offset}", content=body, headers=headers)


def line(number: int, pad: int = 0) -> bytes:
    return encode_line({"k": "tick", "q": number, "m": number, "w": number, "pad": "x" * pad})


def test_a_batch_is_on_disk_when_it_is_acknowledged_and_a_repeat_changes_nothing(client, options, monkeypatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.fstat(file).st_ino), real(file))[1])
    assert client.get(PATH).json()["segments"] == {}
    assert send(client, 0, 0, b"{}\n").json()["size"] == 3
    first = line(0)
    answer = send(client, 1, 0, first)
    assert answer.status_code == 200
    assert answer.json()["size"] == len(first)
    assert answer.json()["sent_ns"] >= answer.json()["received_ns"]
    path = options.data.live / SESSION / "samples-0001.jsonl"
    assert path.read_bytes() == first
    assert path.stat().st_ino in synced
    assert send(client, 1, 0, first).json()["size"] == len(first)
    assert path.read_bytes() == first
    assert client.get(PATH).json()["segments"] == {"0": 3, "1": len(first)}
    assert is_pushed(path.parent)


@pytest.mark.parametrize("offset", [1, 5000])
def test_a_wrong_offset_is_answered_with_the_next_offset(client, options, offset) -> None:
    first = line(0)
    send(client, 1, 0, first)
    answer = send(client, 1, offset, line(1, pad=100))
    assert answer.status_code == 409
    assert answer.json()["size"] == len(first)
    assert (options.data.live / SESSION / "samples-0001.jsonl").read_bytes() == first


def test_damaged_or_too_large_batches_and_unknown_sessions_are_refused(client, options) -> None:
    assert send(client, 1, 0, line(0), crc="00000000").status_code == 400
    assert send(client, 1, 0, line(0), crc="nonsense").status_code == 400
    assert send(client, 1, 0, b"x" * (1 << 20) + b"x").status_code == 413
    assert send(client, 1, 40 << 20, b"x").status_code == 413
    assert send(client, 12345, 0, b"x").status_code == 400
    assert client.post(PATH, content=b"x").status_code == 400
    for name in (".hidden", "a" * 81, "a%2F..%2Fb", "a b"):
        assert send(client, 1, 0, b"x", path=f"/api/v1/live/{name}").status_code in (400, 404)
    assert [p for p in options.data.live.iterdir() if p.name != SESSION] == []


def test_a_local_session_is_not_overwritten(client, options) -> None:
    folder = options.data.live / SESSION
    folder.mkdir()
    (folder / "samples-0001.jsonl").write_bytes(line(0))
    assert send(client, 1, len(line(0)), line(1)).status_code == 409
    assert send(client, 2, 0, line(1)).status_code == 409
    assert send(client, 1, 0, line(0)).status_code == 200
    assert [p.name for p in folder.iterdir()] == ["samples-0001.jsonl"]
    assert (folder / "samples-0001.jsonl").read_bytes() == line(0)


def test_a_full_disk_keeps_earlier_samples(client, options, monkeypatch) -> None:
    send(client, 1, 0, line(0))
    real = os.write

    def full(file: int, data) -> int:
        if len(data) > 20:
            return real(file, bytes(data)[:20])
        raise OSError(28, "no space")

    monkeypatch.setattr("sawtooth.ingest.receiver.os.write", full)
    assert send(client, 1, len(line(0)), line(1)).status_code == 507
    assert (options.data.live / SESSION / "samples-0001.jsonl").read_bytes() == line(0)
    monkeypatch.undo()


def test_some_disk_space_always_stays_free(tmp_path) -> None:
    receiver = Receiver(tmp_path, reserve_bytes=1 << 60)
    with pytest.raises(RefusedError) as refused:
        receiver.append(SESSION, 1, 0, line(0))
    assert refused.value.status == 507


def test_an_incomplete_line_after_a_power_cut_is_removed(tmp_path) -> None:
    Receiver(tmp_path).append(SESSION, 1, 0, line(0) + line(1))
    path = tmp_path / SESSION / "samples-0001.jsonl"
    good = path.read_bytes()
    for tail in (line(2)[:30], b"\0" * 4096, line(2)[:-20] + b"\0" * 19 + b"\n"):
        path.write_bytes(good + tail)
        assert Receiver(tmp_path).stored_sizes(SESSION) == {1: len(good)}
        assert path.read_bytes() == good


def test_the_number_of_sessions_is_limited(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sawtooth.ingest.receiver.MAX_SESSIONS", 2)
    receiver = Receiver(tmp_path)
    for name in ("a", "b"):
        receiver.append(name, 1, 0, line(0))
    with pytest.raises(RefusedError):
        receiver.append("c", 1, 0, line(0))
    receiver.append("a", 1, len(line(0)), line(1))
    with pytest.raises(NotFoundError):
        receiver.stored_sizes("../x")


def test_the_rate_of_batches_is_limited() -> None:
    rate_limit = live.BatchRateLimit(rate=10, burst=3)
    assert [rate_limit.allows("s", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert rate_limit.allows("other", 0.0)
    assert [rate_limit.allows("s", 0.1), rate_limit.allows("s", 0.1)] == [True, False]


def test_senders_of_too_many_batches_are_asked_to_wait(client, monkeypatch) -> None:
    monkeypatch.setattr(live, "rate_limit", live.BatchRateLimit(rate=0.0001, burst=1))
    assert send(client, 1, 0, line(0)).status_code == 200
    answer = send(client, 1, 0, line(0))
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"


def test_the_clock_offset_is_stored(client, options) -> None:
    send(client, 1, 0, line(0), **{"X-Clock-Offset-Ns": "-2000000000"})
    assert clock_offset_ns(options.data.live / SESSION) == -2_000_000_000
    send(client, 1, len(line(0)), line(1), **{"X-Clock-Offset-Ns": "-2000000900"})
    assert clock_offset_ns(options.data.live / SESSION) == -2_000_000_000
    send(client, 1, len(line(0) + line(1)), line(2), **{"X-Clock-Offset-Ns": "1e9"})
    assert clock_offset_ns(options.data.live / SESSION) == -2_000_000_000


def test_the_push_token_only_allows_pushing(options) -> None:
    token = push_token(options.data.root)
    guarded = Settings(options.data, token="the-server-s-own-token")
    app = Starlette(routes=routes(), middleware=[Middleware(AccessMiddleware, settings=guarded)])
    client = TestClient(app, base_url="http://gpu-box:8501")
    for given, status in ((token, 200), ("the-server-s-own-token", 200), ("wrong", 401), ("", 401)):
        assert client.get(PATH, headers={"authorization": f"Bearer {given}"}).status_code == status
        assert send(client, 1, 0, line(0), authorization=f"Bearer {given}").status_code == status
    assert client.get("/api/v1/runs", headers={"authorization": f"Bearer {token}"}).status_code == 401
    assert client.get(f"{PATH}?token={token}").status_code == 401
    origin = {"authorization": f"Bearer {token}", "origin": "http://evil.test"}
    assert send(client, 1, 0, line(0), **origin).status_code == 403


def test_the_push_token_is_stored_privately(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("SAWTOOTH_PUSH_TOKEN", raising=False)
    token = push_token(tmp_path)
    assert push_token(tmp_path) == token
    assert len(token) >= 32
    assert (tmp_path / "push_token").stat().st_mode & 0o077 == 0
    assert [p.name for p in tmp_path.iterdir()] == ["push_token"]
    assert push_command("http://a:1/", token) == f"SAWTOOTH_PUSH_TOKEN={token} sawtooth sample --push http://a:1"
    shown = command_to_show("http://a:1/", Settings(data=DataFolder(tmp_path), token="t"))
    assert shown.split("\n") == [f"SAWTOOTH_PUSH_TOKEN={MASK} \\", "  sawtooth sample --push http://a:1"]
    monkeypatch.setenv("SAWTOOTH_PUSH_TOKEN", "short")
    with pytest.raises(UsageError):
        push_token(tmp_path)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_log_never_contains_the_push_token(tmp_path, monkeypatch, terminal) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    token = push_token(tmp_path)
    printed = command_to_print("http://a:1/", tmp_path)
    assert (token in printed) is terminal
    if not terminal:
        assert printed == f"sawtooth sample --push http://a:1 --token-file {tmp_path / 'push_token'}"
        options = build_parser().parse_args(printed.split()[2:])
        assert find_push_token(options) == token
    monkeypatch.setenv("SAWTOOTH_PUSH_TOKEN", "a-token-of-the-environment")
    assert ("a-token-of-the-environment" in command_to_print("http://a:1/", tmp_path)) is terminal
