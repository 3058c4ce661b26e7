"""Tests of what a leaked push token can do to other users.

The tests check that it cannot block a later sampler, and cannot make Live read for minutes.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
import time
from pathlib import Path

import pytest
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from sawtooth.app.api import live
from sawtooth.app.api.answers import answer_errors
from sawtooth.app.format import clean
from sawtooth.app.live import info as live_info
from sawtooth.app.live.folders import MAX_LISTED_SESSIONS, delete_session, newest_folders
from sawtooth.app.live.info import session_info
from sawtooth.app.server.process import PUSH_THREADS
from sawtooth.app.server.push import push_token
from sawtooth.app.settings import Settings
from sawtooth.ingest import receiver
from sawtooth.ingest.errors import NotFoundError, SourceError
from sawtooth.ingest.receiver import MAX_META_BYTES, Receiver, RefusedError
from sawtooth.ingest.sampler.segments import decode_line, encode_line
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.telemetry.session import SessionReader

pytestmark = pytest.mark.usefixtures("push_threads_end")


def test_empty_sessions_are_removed_for_a_new_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "MAX_SESSIONS", 3)
    monkeypatch.setattr(receiver, "CROWDED_SESSIONS", 3)
    server = Receiver(tmp_path)
    for name in ("empty", "fresh", "sampled"):
        server.append(name, 0, 0, b"{}")
    (tmp_path / "sampled" / "samples-0001.jsonl").write_bytes(b"x")
    with pytest.raises(RefusedError, match="on its Live page"):
        server.append("later", 0, 0, b"{}")
    for name in ("empty", "sampled"):
        os.utime(tmp_path / name, (time.time() - 3600,) * 2)
    assert server.append("later", 0, 0, b"{}").stored
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fresh", "later", "sampled"]


def test_short_sessions_are_removed_if_the_limit_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many sessions of one sample do not block later samplers."""
    monkeypatch.setattr(receiver, "MAX_SESSIONS", 3)
    monkeypatch.setattr(receiver, "FEW_SAMPLES_BYTES", 10)
    server = Receiver(tmp_path)
    for name, size in (("little", 10), ("growing", 10), ("long", 11)):
        server.append(name, 0, 0, b"{}")
        server.append(name, 1, 0, b"x" * size)
    with pytest.raises(RefusedError, match="on its Live page"):  # None of them is silent yet.
        server.append("later", 0, 0, b"{}")
    for name in ("little", "growing", "long"):
        os.utime(tmp_path / name, (time.time() - 3600,) * 2)
    for name in ("little", "long"):
        os.utime(tmp_path / name / "samples-0001.jsonl", (time.time() - 3600,) * 2)
    assert server.append("later", 0, 0, b"{}").stored
    assert sorted(p.name for p in tmp_path.iterdir()) == ["growing", "later", "long"]


def test_pushed_sessions_have_a_quota_that_deletion_frees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Receiver(tmp_path)
    server.append("one", 0, 0, b"x" * 60)
    monkeypatch.setattr(receiver, "MAX_PUSHED_BYTES", 100)
    with pytest.raises(RefusedError, match="on its Live page") as error:
        server.append("two", 0, 0, b"x" * 60)
    assert error.value.status == 507
    monkeypatch.setattr(receiver, "RECOUNT_SECONDS", 0.0)
    delete_session(tmp_path, "one")
    assert server.append("two", 0, 0, b"x" * 60).stored


def test_tiny_files_have_a_quota_and_refusals_are_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, counts = Receiver(tmp_path), []
    monkeypatch.setattr(receiver, "MAX_PUSHED_SEGMENTS", 5)  # The marker and meta.json count too.
    server.append("one", 0, 0, b"{}")
    for segment in (1, 2):
        server.append("one", segment, 0, b"x")
    count_pushed = Receiver._count_pushed
    monkeypatch.setattr(Receiver, "_count_pushed", lambda self: counts.append(1) or count_pushed(self))
    for segment in range(3, 9):
        with pytest.raises(RefusedError, match="on its Live page"):
            server.append("one", segment, 0, b"x")
    assert not counts  # The last count was less than ten seconds ago.
    assert server.append("one", 2, 1, b"y").stored


def test_pushes_wait_on_separate_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that push or query do not occupy the API's threads."""
    release, running = threading.Event(), []

    def blocked(*_: object) -> dict[int, int]:
        running.append(threading.current_thread().name)
        release.wait(30)
        return {}

    async def all_at_once() -> None:
        options = Settings(DataFolder(tmp_path))
        monkeypatch.setattr(live, "settings", lambda: options)
        monkeypatch.setattr(live, "rate_limit", live.BatchRateLimit())
        monkeypatch.setattr(Receiver, "stored_sizes", blocked)
        scopes = [{"type": "http", "headers": [], "path_params": {"session": f"s{i}"}} for i in range(60)]
        requests = [asyncio.create_task(live.show(Request(scope))) for scope in scopes]  # type: ignore[arg-type]
        await asyncio.sleep(0.3)
        await asyncio.wait_for(run_in_threadpool(lambda: None), 5)
        release.set()
        await asyncio.gather(*requests)

    try:
        asyncio.run(all_at_once())
    finally:
        release.set()
    assert len(running) == 60 and len(set(running)) <= PUSH_THREADS <= 8


def test_status_requests_of_samplers_are_rate_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Settings(DataFolder(tmp_path))
    monkeypatch.setattr(live, "settings", lambda: options)
    monkeypatch.setattr(live, "rate_limit", live.BatchRateLimit(rate=0.001, burst=3))
    request = Request({"type": "http", "headers": [], "path_params": {"session": "s"}})
    assert [asyncio.run(live.show(request)).status_code for _ in range(5)] == [200, 200, 200, 429, 429]


def test_metadata_of_only_lists_is_not_decoded(tmp_path: Path) -> None:
    """A hundred thousand lists would block the interpreter, and every page, for half a second."""
    lists = "[" + ",".join(["[[]]"] * 20_000) + "]"
    text = f'{{"columns": [], "started_w": 1, "devices": [], "more": {lists}}}'
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(SourceError):
        _ = SessionReader(tmp_path).meta
    fine = {"k": "tick", "m": 1, "w": 1}
    assert decode_line(encode_line(fine).rstrip()) is not None
    assert decode_line(encode_line({**fine, "g": json.loads(lists)}).rstrip()) is None


def test_an_endless_name_does_not_slow_pages(tmp_path: Path) -> None:
    """The Live page escapes the names of two hundred sessions each time it is drawn."""
    meta = {"devices": [], "started_w": 10**18, "name": "n" * 60_000, "host": "h" * 60_000}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    info = session_info(tmp_path)
    assert info is not None and len(info.name) == len(info.host) == live_info.NAME_LENGTH
    began = time.process_time()
    assert len(clean("n" * 30_000_000, 70)) == 70
    assert time.process_time() - began < 0.5


def test_only_the_complete_session_is_deleted(tmp_path: Path) -> None:
    live = tmp_path / "live"
    Receiver(tmp_path).append("live", 0, 0, b"x")
    for name in ("one", "two"):
        Receiver(live).append(name, 0, 0, b"x")
    delete_session(live, "one")
    for name in ("one", "..", "../live", "", "two/meta.json"):
        with pytest.raises(NotFoundError):
            delete_session(live, name)
    assert [path.name for path in live.iterdir() if path.is_dir()] == ["two"]


def test_many_sessions_do_not_hide_newer_ones(tmp_path: Path) -> None:
    for number in range(MAX_LISTED_SESSIONS + 50):
        (tmp_path / f"flood-{number}").mkdir()
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, when in ((old, 1_000.0), (new, 2_000.0)):
        folder.mkdir()
        (folder / "samples-0001.jsonl").write_bytes(b"x")
        os.utime(folder / "samples-0001.jsonl", (when, when))
        os.utime(folder, (when, when))
    found = newest_folders(tmp_path)
    assert len(found) == MAX_LISTED_SESSIONS and found[:2] == [new, old]


def test_an_unreasonably_large_meta_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as error:
        Receiver(tmp_path).append("s", 0, 0, b"[" * (MAX_META_BYTES + 1))
    assert error.value.status == 413


def test_unchanged_meta_records_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = {"devices": [{}], "started_w": 10**18, "name": "run", "host": None, "columns": [], "more": {"deep": [[[1]]]}}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    info = session_info(tmp_path)
    assert info is not None and (info.name, info.host, info.gpus) == ("run", "", 1)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("read again"))
    assert session_info(tmp_path) == info
    monkeypatch.undo()
    (tmp_path / "meta.json").write_text(json.dumps(meta | {"name": "another"}))
    assert session_info(tmp_path).name == "another"  # type: ignore[union-attr]
    (tmp_path / "meta.json").write_text("[" * 100_000)
    assert session_info(tmp_path) is None
    assert live_info.MAX_INFOS > receiver.MAX_SESSIONS


def _pushed(session: str, options: Settings, monkeypatch: pytest.MonkeyPatch, *, endless: bool = False) -> int:
    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": endless}

    monkeypatch.setattr(live, "settings", lambda: options)
    monkeypatch.setattr(live, "rate_limit", live.BatchRateLimit())
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"segment=1&offset=0", "headers": []}
    request = Request(scope | {"path_params": {"session": session}}, receive)
    return asyncio.run(live.push(request)).status_code


def test_an_endless_slow_request_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BODY_SECONDS", 0.2)
    assert _pushed("s", Settings(DataFolder(tmp_path)), monkeypatch, endless=True) == 408


def test_names_of_unknown_sessions_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pushed("../" + "x" * 5000, Settings(DataFolder(tmp_path)), monkeypatch) == 404
    assert live.rate_limit._left == {}


def test_a_flipped_bit_in_the_push_token_s_file_makes_a_new_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAWTOOTH_PUSH_TOKEN", raising=False)
    old = push_token(tmp_path)
    (tmp_path / "push_token").write_bytes(bytes([ord(old[0]) | 0x80]) + old[1:].encode())
    assert push_token(tmp_path) not in ("", old) and push_token(tmp_path) == push_token(tmp_path)


def test_a_session_deleted_during_counting_counts_as_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Receiver(tmp_path)
    for name in ("deleted", "stays"):
        server.append(name, 0, 0, b"{}")
    scandir = os.scandir

    def deleted_before(folder: Path) -> object:
        if isinstance(folder, Path) and folder.name == "deleted":
            delete_session(tmp_path, "deleted")
        return scandir(folder)

    monkeypatch.setattr(receiver.os, "scandir", deleted_before)
    assert server._count_pushed() == (4, 2)  # meta.json and the marker of the other.


@pytest.mark.parametrize(("error", "disk"), [(errno.ENOSPC, True), (errno.EROFS, True), (errno.ENOENT, False)])
def test_only_a_full_disk_is_reported_as_full(error: int, disk: bool) -> None:
    @answer_errors
    async def fails(_: Request) -> Response:
        raise OSError(error, os.strerror(error))

    if disk:
        assert asyncio.run(fails(Request({"type": "http"}))).status_code == 507  # type: ignore[arg-type]
    else:
        with pytest.raises(FileNotFoundError):
            asyncio.run(fails(Request({"type": "http"})))  # type: ignore[arg-type]
