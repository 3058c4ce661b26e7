"""``PUT /api/v1/uploads?name=…``: stream one file to the disk, with constant memory.

At most two uploads run at once. Further uploads get status 429. Size, free disk space and time are limited. An incomplete file is
always removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sawtooth.app.api.answers import answer_errors, json, refusal
from sawtooth.app.format import bytes_, clean
from sawtooth.app.jobs.leftovers import is_stale_upload
from sawtooth.app.settings import Settings, settings
from sawtooth.ingest.errors import NotFoundError, SourceError, UsageError
from sawtooth.ingest.files import draft_file

MAX_UPLOADS = 2  # Uploads that run at once. Each writes as fast as the disk permits, and more would slow down the pages.
BLOCK_BYTES = 1 << 20  # Bytes of one write to the disk. Larger blocks take memory, smaller blocks need more writes.
DISK_CHECK_BYTES = 64 << 20  # The free space is checked each time this many bytes have arrived, so before the disk is full.
IDLE_SECONDS = 30  # If nothing arrives for this time, the sender has disconnected.
# A slower upload would block one of the two uploads. Even a bad mobile network is ten times as fast.
MIN_BYTES_PER_SECOND = 4096
MIN_BYTES_PER_SECOND_IN_QUEUE = 100_000  # The limit while other clients wait. 1 GB then takes at most three hours.
QUEUE_SECONDS = 5.0  # Another client waits if one was refused within this time, because a refused client asks every second.
MAX_UPLOAD_SECONDS = 2 * 3600  # At 36 Mbit/s, 32 GB take two hours.
NAME_LENGTH = 200  # Stored characters of a file name.
LENGTH = re.compile(r"[0-9]{1,18}")
UPLOAD_ID = re.compile(r"[0-9a-f]{32}")

_running = 0
_refused_at = float("-inf")  # Time at which a client was last refused.


class UploadRefusedError(Exception):
    """The upload must stop, for the reason in the sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@answer_errors
async def put(request: Request) -> Response:
    """Store the body and return ``{"upload": id, "bytes": n, "name": …}``."""
    global _running, _refused_at
    if _running >= MAX_UPLOADS:
        _refused_at = time.monotonic()
        return refusal(
            429, "Two uploads are running already. This upload starts when one of them ends.", "busy", {"retry-after": "1"}
        )
    _running += 1
    try:
        return await _store(request, settings())
    finally:
        _running -= 1


async def _store(request: Request, options: Settings) -> Response:
    name = clean(request.query_params.get("name", ""), NAME_LENGTH).strip().rsplit("/", 1)[-1].rsplit("\\", 1)[-1] or "upload"
    folder = options.data.create().uploads
    await run_in_threadpool(remove_stale_uploads, folder)
    upload = secrets.token_hex(16)
    try:
        _check_length(request.headers.get("content-length"), folder, options)
        with draft_file(folder) as part:
            async with asyncio.timeout(MAX_UPLOAD_SECONDS):
                size = await _receive(request, part, options)
            part.rename(folder / upload)
        return json({"upload": upload, "bytes": size, "name": name}, 201)
    except UploadRefusedError as error:
        return refusal(error.status, str(error))
    except TimeoutError:
        return refusal(
            408,
            f"The upload was too slow: too little arrived within {IDLE_SECONDS} seconds, or it took more than {MAX_UPLOAD_SECONDS // 3600} hours. Drop the file again.",
        )
    except ClientDisconnect:
        return refusal(400, "The connection closed before the end of the file.")
    except SourceError:
        return refusal(507, "The file could not be written to the server's disk. Free some space there, then drop it again.")


def _check_length(length_header: str | None, folder: Path, options: Settings) -> None:
    if length_header is None or not LENGTH.fullmatch(length_header):
        return
    length = int(length_header)
    _check_cap(length, options)
    free = shutil.disk_usage(folder).free
    if length + options.disk_reserve_bytes > free:
        raise UploadRefusedError(
            507,
            f"The file has {bytes_(length)}, but the server's disk has only {bytes_(free)} free. Free some space there, then drop it again.",
        )


def _check_cap(size: int, options: Settings) -> None:
    if size > options.upload_cap_bytes:
        raise UploadRefusedError(
            413,
            f"The file is larger than {bytes_(options.upload_cap_bytes)}, the limit of this server (SAWTOOTH_MAX_UPLOAD_GB). "
            "On the server itself, sawtooth ingest FILE has no such limit.",
        )


async def _receive(request: Request, part: Path, options: Settings) -> int:
    stream = request.stream().__aiter__()
    size = size_at_disk_check = size_at_speed_check = 0
    speed_checked_s = time.monotonic()
    block = bytearray()
    file = await run_in_threadpool(part.open, "wb")
    try:
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    chunk = await anext(stream)
            except StopAsyncIteration:
                break
            size += len(chunk)
            if (passed_s := time.monotonic() - speed_checked_s) > IDLE_SECONDS:
                if size - size_at_speed_check < passed_s * _min_speed(time.monotonic()):
                    raise TimeoutError
                speed_checked_s, size_at_speed_check = time.monotonic(), size
            _check_cap(size, options)
            block += chunk
            if len(block) >= BLOCK_BYTES:
                await run_in_threadpool(file.write, bytes(block))
                block.clear()
            if size - size_at_disk_check >= DISK_CHECK_BYTES:
                size_at_disk_check = size
                if shutil.disk_usage(part.parent).free < options.disk_reserve_bytes:
                    raise UploadRefusedError(
                        507,
                        "The server's disk is almost full, so the upload was stopped. Free some space there, then drop the file again.",
                    )
        await run_in_threadpool(file.write, bytes(block))
    finally:
        await run_in_threadpool(file.close)
    return size


def _min_speed(now: float) -> int:
    """Return the speed in bytes per second below which an upload is ended."""
    return MIN_BYTES_PER_SECOND_IN_QUEUE if now - _refused_at < QUEUE_SECONDS else MIN_BYTES_PER_SECOND


def remove_stale_uploads(folder: Path, clock: Callable[[], float] = time.time) -> None:
    """Remove complete uploads without a job after an hour; running jobs are not affected."""
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):  # A job may take the file at this moment.
            if UPLOAD_ID.fullmatch(entry.name) and is_stale_upload(entry, clock()):
                entry.unlink()


def claim_upload(upload: str) -> Path:
    """Return the path of a complete upload.

    Raises UsageError for an invalid id, and NotFoundError for an unknown one.
    """
    if not UPLOAD_ID.fullmatch(upload):
        raise UsageError("An upload's id is 32 hexadecimal digits.")
    path = settings().data.uploads / upload
    if not path.is_file():
        raise NotFoundError("This server has no such upload. It may have expired after an hour. Drop the file again.")
    return path
