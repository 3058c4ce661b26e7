"""Logins by a one-time link or by the token in a form.

Links and cookies of older versions work too.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope

from sawtooth.app import templates
from sawtooth.app.server.flow import TokenBucket
from sawtooth.app.server.headers import content_security_policy
from sawtooth.app.server.local_user import user_of
from sawtooth.app.server.request_body import whole_body
from sawtooth.app.server.sessions import SESSION_SECONDS, Sessions, token_hash

log = logging.getLogger("sawtooth")
LOGIN, LOGOUT = "/login", "/logout"
LINK, TOKEN = "launch", "token"  # Address parameters that log somebody in.
# The cookie with the address that a browser asked for before the login. It is stored as long as an invitation is valid (a day).
WANTED, WANTED_SECONDS, WANTED_LONGEST = "sawtooth_wanted", 86400, 2000
FORM_BYTES, FORM_SECONDS = 8 << 10, 10.0  # Enough for a token and an address, which arrive in one packet.
WRONG_AT_ONCE, WRONG_PER_SECOND = 10.0, 0.1  # Wrong tokens of one peer: a person mistypes twice, a program guesses thousands.
PEERS_REMEMBERED = 4096  # The failed logins of at most this many addresses are stored.
COOKIES_TRIED = 5  # Cookies of the same name: each needs a look-up in the data folder.
LOG_EVERY_SECONDS = 10.0  # Shortest time between two log lines. A line gives the number of wrong tokens since the last one.
NEEDED = (
    "Did somebody send you this address? Ask them for an invitation, made on their page Logins. Is the server yours? Log in with the link "
    "that it printed when it started, or with its token; `sawtooth serve --link` prints a new link."
)
USED = "This link was used already, or it is older than a day. Ask the person who sent it for another. On the server's machine, `sawtooth serve --link` prints one."
WRONG = "This is not the server's token."
SLOWED = "Too many wrong tokens came from your address. Try again in a minute."


@dataclass(frozen=True)
class LoginRefusal:
    """Why a request is not served: the status, and a sentence for users."""

    status: int
    sentence: str


@dataclass(frozen=True)
class Client:
    """The sender of a request: the address, the user if it is on this machine, and the headers."""

    address: str
    user: int | None
    headers: Headers

    @property
    def key(self) -> str:
        """The key for counting wrong tokens: on a shared host, one user must not slow down others."""
        return f"user {self.user}" if self.user is not None else self.address


def caller_of(scope: Scope, peer: tuple[str, int] | None) -> Client:
    """Return the sender of a request; ``peer`` is the other end of its connection."""
    server = scope.get("server")
    return Client(peer[0] if peer else "", user_of(peer, tuple(server) if server else None), Headers(scope=scope))


class WrongTokens:
    """The number of wrong tokens by sender; after a few, further ones are ignored for a while.

    The log has at most one line per LOG_EVERY_SECONDS.
    """

    def __init__(self) -> None:
        self._peers: dict[str, TokenBucket] = {}
        self._logged, self._unlogged = float("-inf"), 0

    def blocked(self, caller: Client) -> bool:
        """Return whether the caller must wait."""
        bucket = self._peers.get(caller.key)
        return bucket is not None and bucket.empty()

    @property
    def none_sent(self) -> bool:
        """Whether no wrong token was sent yet; then it is not necessary to find out who the caller is."""
        return not self._peers

    def count(self, caller: Client, path: str) -> None:
        """Count a wrong token."""
        if len(self._peers) > PEERS_REMEMBERED:
            self._peers = {key: bucket for key, bucket in self._peers.items() if bucket.empty()}
        self._peers.setdefault(caller.key, TokenBucket(WRONG_PER_SECOND, WRONG_AT_ONCE)).wait_s()
        self._unlogged += 1
        if time.monotonic() - self._logged >= LOG_EVERY_SECONDS:
            log.warning(
                "a wrong token came from %s for %r (%d since the last such line)", caller.key, path[:80], self._unlogged
            )
            self._logged, self._unlogged = time.monotonic(), 0


class Authentication:
    """Checks callers: admits those with a session, a link or the token of this server."""

    def __init__(self, token: str, sessions: Sessions) -> None:
        self.sessions = sessions
        self.wrong = WrongTokens()
        self._token, self._token_hash = token, token_hash(token)
        self._old_cookie = cookie_of(token)
        self.cookie = session_cookie_of(token)

    def is_token(self, sent: str) -> bool:
        """Return whether ``sent`` is the token, or the line of the token's file, which begins with the token.

        The comparison takes the same time for every input.
        """
        first = sent.split(maxsplit=1)[0] if sent.strip() else ""
        return hmac.compare_digest(sent.encode(), self._token.encode()) or hmac.compare_digest(
            first.encode(), self._token.encode()
        )

    def logged_in(self, caller: Client) -> bool:
        """Return whether the request has a session, or the cookie of an older version."""
        # Not http.cookies: it drops all cookies if another server of this host has set one such as x={"a": 1}.
        if any(self.sessions.find(secret, caller.user, self._token_hash) for secret in self.secrets(caller)):
            return True
        name, value = self._old_cookie
        return hmac.compare_digest(cookie_parser(caller.headers.get("cookie", "")).get(name, "").encode(), value.encode())

    def secrets(self, caller: Client) -> list[str]:
        """Return the request's session cookies.

        A server on another port of this host can set a cookie with the same name.
        """
        pairs = (pair.partition("=") for pair in caller.headers.get("cookie", "").split(";"))
        return [value.strip() for name, _, value in pairs if name.strip() == self.cookie][:COOKIES_TRIED]

    def answer(self, scope: Scope, caller: Client) -> Response | None:
        """Return the response to a request other than a form; None if the request is admitted."""
        query = _query(scope)
        readable = scope["type"] == "http" and scope["method"] == "GET"
        if self.logged_in(caller):
            return _redirect_without_login(scope) if readable and (LINK in query or TOKEN in query) else None
        if readable and query.get(LINK) and self.sessions.has_link(query[LINK], caller.user):
            return _link_page(query[LINK], _redirect_without_login(scope).headers["location"])
        bearer = _bearer(caller.headers)
        offered = bearer or (query.get(TOKEN, "") if readable else "")
        if not offered:
            return self.refuse(LoginRefusal(401, USED if query.get(LINK) else NEEDED), caller, scope)
        if refusal := self.checked(offered, caller, scope["path"]):
            return self.refuse(refusal, caller, scope)
        return None if bearer else self._welcome(scope, caller, "token", _redirect_without_login(scope))

    def checked(self, offered: str, caller: Client, path: str) -> LoginRefusal | None:
        """Check a token; return why it is refused, or None if it is accepted."""
        if self.wrong.blocked(caller):
            return LoginRefusal(429, SLOWED)
        if self.is_token(offered):
            return None
        self.wrong.count(caller, path)
        return LoginRefusal(401, WRONG)

    async def form(self, scope: Scope, receive: Receive, caller: Client) -> Response:
        """Answer a login form (with the token or a one-time link), or a logout."""
        if scope["path"] == LOGOUT:
            for secret in self.secrets(caller):
                self.sessions.end_of(secret)
            response = RedirectResponse("/", status_code=303)
            response.delete_cookie(self.cookie, path="/")
            response.delete_cookie(self._old_cookie[0], path="/")
            return response
        fields = await _fields(Request(scope, receive))
        target = fields.get("next", "/")
        if code := fields.get(LINK):
            if not self.sessions.redeem(code, caller.user):
                return self.refuse(LoginRefusal(401, USED), caller, scope, target)
            return self._welcome(
                scope, caller, "link", _to_refused_address(caller, RedirectResponse(_local(target), status_code=303))
            )
        if refusal := self.checked(fields.get(TOKEN, ""), caller, scope["path"]):
            return self.refuse(refusal, caller, scope, target)
        return self._welcome(scope, caller, "token", RedirectResponse(_local(target), status_code=303))

    def _welcome(self, scope: Scope, caller: Client, how: str, answer: Response) -> Response:
        agent = caller.headers.get("user-agent", "")
        secret = self.sessions.open(self.sessions.new(how, agent, caller.address, caller.user, self._token_hash))
        answer.set_cookie(
            self.cookie,
            secret,
            max_age=int(SESSION_SECONDS),
            httponly=True,
            samesite="lax",
            secure=scope.get("scheme") == "https",
            path="/",
        )
        return answer

    def refuse(self, refusal: LoginRefusal, caller: Client, scope: Scope, target: str | None = None) -> Response:
        """Return the page that asks for the token and then leads to the requested address."""
        if "text/html" not in caller.headers.get("accept", ""):
            return PlainTextResponse(refusal.sentence, refusal.status)
        target = target or _redirect_without_login(scope).headers["location"]
        page = templates.render("refusal.html", sentence=refusal.sentence, asks_for_token=True, target=target)
        # With "no-referrer", the form's origin would be "null", which is not a valid origin.
        answer = HTMLResponse(page, refusal.status, {"referrer-policy": "same-origin", "cache-control": "no-store"})
        if scope["type"] == "http" and scope["method"] == "GET" and target != "/" and len(target) <= WANTED_LONGEST:
            secure = scope.get("scheme") == "https"
            answer.set_cookie(
                WANTED, quote(target, safe=""), WANTED_SECONDS, httponly=True, samesite="lax", secure=secure, path="/"
            )
        return answer


def _link_page(code: str, target: str) -> Response:
    """Return the page of a one-time link.

    It logs in by POST, because chat programs fetch every address for a preview.
    """
    page = templates.render("link.html", code=code, target=target)
    headers = {
        "content-security-policy": content_security_policy(page),  # allows the page's own script
        "referrer-policy": "same-origin",  # with "no-referrer", the form's origin would be "null"
        "cache-control": "no-store",
    }
    return HTMLResponse(page, headers=headers)


def cookie_of(token: str) -> tuple[str, str]:
    """Return name and value of the cookie that older versions set for ``token``.

    It is valid as long as the token is the same.
    """
    digest = hashlib.sha256(b"sawtooth cookie name\0" + token.encode()).hexdigest()
    return f"sawtooth_{digest[:8]}", hmac.new(token.encode(), b"sawtooth cookie", hashlib.sha256).hexdigest()


def session_cookie_of(token: str) -> str:
    """Return the name of the session's cookie, which differs between two servers on one host."""
    return f"sawtooth_session_{hashlib.sha256(b'sawtooth session name' + token.encode()).hexdigest()[:8]}"


def _bearer(headers: Headers) -> str:
    kind, _, sent = headers.get("authorization", "").partition(" ")
    return sent.strip() if kind.lower() == "bearer" else ""


async def _fields(request: Request) -> dict[str, str]:
    """Return the fields of a short form; empty if it is too long or does not arrive."""
    try:
        body = await whole_body(request, FORM_BYTES, FORM_SECONDS)
    except Exception:  # it was too long or too slow, or the client disconnected
        return {}
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))


def _redirect_without_login(scope: Scope) -> RedirectResponse:
    """Redirect to the same address without the parameters that logged in."""
    rest: Iterable[tuple[str, str]] = [
        pair for pair in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True) if pair[0] not in (LINK, TOKEN)
    ]  # fmt: skip
    query = urlencode(list(rest))
    path = "/" if scope["path"] in (LOGIN, LOGOUT) else scope["path"]
    return RedirectResponse(_local(f"{path}?{query}" if query else path), status_code=303)


def _to_refused_address(caller: Client, answer: RedirectResponse) -> RedirectResponse:
    """Redirect to the address that this browser was refused before, if the invitation names no page.

    The refused address is, for example, a comparison that a colleague sent.
    """
    target = unquote(cookie_parser(caller.headers.get("cookie", "")).get(WANTED, ""))[:WANTED_LONGEST]
    if answer.headers["location"] == "/" and target:
        answer = RedirectResponse(_local(target), status_code=303)
    answer.delete_cookie(WANTED, path="/")
    return answer


def _local(target: str) -> str:
    """Return an address of this server for any input; never //host, which would lead to another server."""
    return "/" + target.lstrip("/\\")
