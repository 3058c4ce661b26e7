"""Sessions and one-time links, which all servers and commands of a data folder share.

A session's cookie and a link's code are random. The folder contains only their hashes. Servers reject an ended session within a
second, and its open pages close with their next message. Sessions and links stay in memory if the folder cannot be written.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from sawtooth.ingest.json_checksum import with_checksum, without_checksum
from sawtooth.ingest.schema import DataFolder, write_atomically
from sawtooth.ingest.typed import from_json

log = logging.getLogger("sawtooth")
SESSION_SECONDS = 30 * 24 * 3600.0  # A session ends after this time without a request.
LINK_SECONDS = 24 * 3600.0  # A link is valid for a day, because it stays readable in a terminal or in a container's log.
LAST_USE_INTERVAL_S = 300.0  # The time of the last use is updated this often, because each update is a write.
CACHE_SECONDS = 1.0  # After this time, a session is read from the folder again, because it may have been ended.
MAX_SESSIONS = 500  # The least recently used sessions are removed, so that a script with many logins does not fill the folder.
MAX_LINKS = 100  # At most this many unused links are valid at a time.
TEXT_LENGTH = 300  # Characters of a browser's name. Only its end distinguishes Edge from Chrome.


class Session(msgspec.Struct, frozen=True):
    """One login: how (``link`` or ``token``), when (Unix seconds), the browser, the address and the user.

    Only ``user`` of this machine may use the session. Anybody may use it if the system did not report the user (None). ``token`` is
    the hash of the server's token at the login. The session ends when the server gets another token.
    """

    how: str
    created: float
    agent: str = ""
    address: str = ""
    user: int | None = None
    token: str | None = None

    def accepted_with(self, token: str) -> bool:
        """Return whether a server with ``token`` accepts the session."""
        return self.token in (None, token_hash(token))


class _Link(msgspec.Struct, frozen=True):
    until: float
    user: int | None = None

    def opens_for(self, user: int | None) -> bool:
        """Return whether ``user`` of this machine may use the link; None means that the user is unknown."""
        return self.user is None or user is None or self.user == user


@dataclass(frozen=True)
class ListedSession:
    """A session as users see it: its id, which gives no access, its data, and the time of the last use."""

    id: str
    session: Session
    seen: float


class Sessions:
    """The sessions of one data folder; several threads and processes may use it."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._memory: dict[str, bytes] = {}  # Sessions and links that could not be written.
        self._cached: dict[str, tuple[float, Session]] = {}

    def link(self, user: int | None = None) -> str:
        """Return the code of a new link that logs in one browser, once.

        With ``user``, only this user of this machine can use it.
        """
        self._remove_oldest("link-", MAX_LINKS)
        code = secrets.token_urlsafe(24)
        self._write(_name("link", code), _Link(self._clock() + LINK_SECONDS, user))
        return code

    def has_link(self, code: str, user: int | None) -> bool:
        """Return whether ``redeem`` would accept a link, without using it."""
        link = self._link(_name("link", code))
        return link is not None and link.opens_for(user) and self._clock() <= link.until

    def redeem(self, code: str, user: int | None) -> bool:
        """Use a link up; return False if it does not exist, is too old, or belongs to another user."""
        name = _name("link", code)
        link = self._link(name)
        return link is not None and link.opens_for(user) and self._remove(name) and self._clock() <= link.until

    def open(self, session: Session) -> str:
        """Start a session; return its secret, which is the cookie's value."""
        self._remove_oldest("session-", MAX_SESSIONS)
        secret = secrets.token_urlsafe(32)
        self._write(_name("session", secret), session)
        return secret

    def new(self, how: str, agent: str, address: str, user: int | None, token: str | None) -> Session:
        """Return a session that starts now, with shortened texts."""
        return Session(how, self._clock(), agent[:TEXT_LENGTH], address[:TEXT_LENGTH], user, token)

    def find(self, secret: str, user: int | None, token: str) -> Session | None:
        """Return the session of a cookie for requests by ``user``, or None.

        ``token`` is the hash of the server's current token.
        """
        name = _name("session", secret)
        now, (read_at, session) = self._clock(), self._cached.get(name, (0.0, None))
        if session is None or not 0 <= now - read_at < CACHE_SECONDS:
            session = self._session(name, now)
            if session is None:
                self._cached.pop(name, None)
                return None
            if len(self._cached) > MAX_SESSIONS:
                self._cached.clear()
            self._cached[name] = (now, session)
        is_users = session.user is None or session.user == user
        return session if is_users and session.token in (None, token) else None

    def all(self) -> list[ListedSession]:
        """Return every session, the most recently used one first."""
        names = {path.name for path in self._folder.glob("session-*")} | {n for n in self._memory if n.startswith("session-")}
        now, sessions = self._clock(), []
        for name in names:
            session = self._session(name, now, read_only=True)
            if session is not None:
                sessions.append(ListedSession(name.removeprefix("session-"), session, self._seen(name) or session.created))
        return sorted(sessions, key=lambda listed: listed.seen, reverse=True)

    def end(self, session_id: str) -> bool:
        """End a session by its id; False if it does not exist."""
        name = f"session-{session_id}"
        self._cached.pop(name, None)
        return session_id.isalnum() and self._remove(name)

    def end_of(self, secret: str) -> None:
        """End the session of a cookie."""
        self.end(_name("session", secret).removeprefix("session-"))

    def id_of(self, secret: str) -> str:
        """Return the id of a cookie's session, even if the session does not exist."""
        return _name("session", secret).removeprefix("session-")

    def _link(self, name: str) -> _Link | None:
        content = self._read(name)
        try:
            return from_json(content, _Link) if content else None
        except msgspec.MsgspecError:
            return None

    def _session(self, name: str, now: float, *, read_only: bool = False) -> Session | None:
        content, last_seen = self._read(name), self._seen(name)
        if content is None:
            return None
        try:
            session = from_json(content, Session)
        except msgspec.MsgspecError:
            return None
        if now - (last_seen or session.created) > SESSION_SECONDS:
            self._remove(name)
            return None
        if not read_only and last_seen is not None and now - last_seen > LAST_USE_INTERVAL_S:
            with contextlib.suppress(OSError):
                os.utime(self._folder / name, (now, now))
        return session

    def _seen(self, name: str) -> float | None:
        try:
            return (self._folder / name).stat().st_mtime
        except OSError:
            return None

    def _read(self, name: str) -> bytes | None:
        if name in self._memory:
            return self._memory[name]
        try:
            return without_checksum((self._folder / name).read_bytes())
        except OSError:
            return None
        except ValueError:
            log.warning("the login stored in %s is damaged and was removed. Its browser must log in again", name)
            self._remove(name)
            return None

    def _write(self, name: str, content: Session | _Link) -> None:
        encoded = with_checksum(msgspec.json.format(msgspec.json.encode(content), indent=2))
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._folder / name, encoded)
        except OSError:
            self._memory[name] = without_checksum(encoded)

    def _remove(self, name: str) -> bool:
        if self._memory.pop(name, None) is not None:
            return True
        try:
            (self._folder / name).unlink()  # If two requests use one link, unlink succeeds for only one of them.
        except OSError:
            return False
        return True

    def _remove_oldest(self, prefix: str, max_count: int) -> None:
        """Remove the oldest sessions or links, so that one more does not exceed ``max_count``."""
        in_memory = [name for name in list(self._memory) if name.startswith(prefix)]  # They are in the order of their creation.
        for name in in_memory[: max(0, len(in_memory) - max_count + 1)]:
            self._memory.pop(name, None)
        with contextlib.suppress(OSError):
            files = sorted(self._folder.glob(f"{prefix}*"), key=lambda path: path.stat().st_mtime)
            for path in files[: max(0, len(files) - max_count + 1)]:
                path.unlink(missing_ok=True)


def _name(kind: str, secret: str) -> str:
    return f"{kind}-{hashlib.sha256(secret.encode()).hexdigest()[:32]}"


def token_hash(token: str) -> str:
    """Return a hash of ``token`` that may be stored in its place."""
    return hashlib.sha256(b"sawtooth token print\0" + token.encode()).hexdigest()[:32]


@lru_cache(maxsize=8)
def sessions_of(data: DataFolder) -> Sessions:
    """Return the sessions of a data folder, one object in the whole process."""
    return Sessions(data.access)
