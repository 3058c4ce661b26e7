"""The receiving side of a push, in memory."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit


class PushReceiver:
    def __init__(self, token: str = "T") -> None:
        self.token = token
        self.received: dict[str, dict[int, bytearray]] = {}
        self.writes = 0

    def send(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(url)
        session = parts.path.removeprefix("/api/v1/live/")
        if headers.get("Authorization") != f"Bearer {self.token}":
            return 401, {}
        stamps = {"received_ns": 5_000_000_000, "sent_ns": 5_000_000_000}
        segments = self.received.get(session, {})
        if method == "GET":
            return 200, {"segments": {str(n): len(b) for n, b in segments.items()}, **stamps}
        query = parse_qs(parts.query)
        segment, offset = int(query["segment"][0]), int(query["offset"][0])
        assert body is not None
        if f"{zlib.crc32(body):08x}" != headers["X-Content-CRC32"]:
            return 400, stamps
        content = self.received.setdefault(session, {}).setdefault(segment, bytearray())
        if offset == len(content):
            content += body
            self.writes += 1
            return 200, {"size": len(content), **stamps}
        if offset + len(body) <= len(content):
            return 200, {"size": len(content), **stamps}
        return 409, {"size": len(content), **stamps}
