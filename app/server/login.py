"""Logins by a one-time link or by the token in a form."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
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
# The cookie with the address that a browser requested before the login. It is stored as long as an invitation is valid (a day).
REQUESTED_COOKIE, REQUESTED_COOKIE_S, MAX_REQUESTED_LENGTH = "sawtooth_wanted", 86400, 2000
MAX_FORM_BYTES, MAX_FORM_S = 8 << 10, 10.0  # A token and an address arrive in one packet.
# Wrong tokens of one peer. A person mistypes twice, a program guesses thousands of times.
WRONG_BURST, WRONG_PER_SECOND = 10.0, 0.1
MAX_PEERS = 4096  # The failed logins of at most this many addresses are stored.
MAX_COOKIES = 5  # Cookies of one name that are tried, because each needs a look-up in the data folder.
MIN_LOG_INTERVAL_S = 10.0  # Time between two log lines. A line gives the number of wrong tokens since the last line.
LOGIN_NEEDED = (
    "Did somebody send you this address? Ask them for an invitation from their page Logins. Is the server yours? Log in with the link that "
    "the server printed at its start, or with its token. `sawtooth serve --link` prints a new link."
)
USED = "This link was used already, or it is older than a day. Ask the sender for another link. On the server's machine, `sawtooth serve --link` prints one."
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
    """The number of wrong tokens by sender.

    After a few wrong tokens, further tokens are ignored for a while.
    """

    def __init__(self) -> None:
        self._peers: dict[str, TokenBucket] = {}
        self._logged, self._unlogged = float("-inf"), 0

    def blocked(self, caller: Client) -> bool:
        """Return whether the caller must wait."""
        bucket = self._peers.get(caller.key)
        return bucket is not None and bucket.is_empty()

    @property
    def none_sent(self) -> bool:
        """Whether no wrong token was sent yet, so that the caller need not be identified."""
        return not self._peers

    def count(self, caller: Client, path: str) -> None:
        """Count a wrong token."""
        if len(self._peers) > MAX_PEERS:
            self._peers = {key: bucket for key, bucket in self._peers.items() if bucket.is_empty()}
        self._peers.setdefault(caller.key, TokenBucket(WRONG_PER_SECOND, WRONG_BURST)).wait_s()
        self._unlogged += 1
        if time.monotonic() - self._logged >= MIN_LOG_INTERVAL_S:
            log.warning(
                "a wrong token came from %s for %r (%d since the last such line)", caller.key, path[:80], self._unlogged
            )
            self._logged, self._unlogged = time.monotonic(), 0


class Authentication:
    """The check of callers, which admits callers with a session, a link or the token of this server."""

    def __init__(self, token: str, sessions: Sessions) -> None:
        self.sessions = sessions
        self.wrong = WrongTokens()
        self._token, self._token_hash = token, token_hash(token)
        self.cookie = session_cookie_of(token)

    def is_token(self, sent: str) -> bool:
        """Return whether ``sent`` is the token, or the line of the token's file, which begins with the token.

        The comparison takes equally long for every input.
        """
        first = sent.split(maxsplit=1)[0] if sent.strip() else ""
        return hmac.compare_digest(sent.encode(), self._token.encode()) or hmac.compare_digest(
            first.encode(), self._token.encode()
        )

    def logged_in(self, caller: Client) -> bool:
        """Return whether the request has a session."""
        return any(self.sessions.find(secret, caller.user, self._token_hash) for secret in self.secrets(caller))

    def secrets(self, caller: Client) -> list[str]:
        """Return the request's session cookies.

        A server on another port of this host can set a cookie with the same name. http.cookies would drop all cookies if one is
        not valid, such as x={"a": 1}.
        """
        pairs = (pair.partition("=") for pair in caller.headers.get("cookie", "").split(";"))
        return [value.strip() for name, _, value in pairs if name.strip() == self.cookie][:MAX_COOKIES]

    def answer(self, scope: Scope, caller: Client) -> Response | None:
        """Return the response to a request other than a form; None if the request is admitted."""
        query = _query(scope)
        is_get = scope["type"] == "http" and scope["method"] == "GET"
        if self.logged_in(caller):
            return _redirect_without_login(scope) if is_get and (LINK in query or TOKEN in query) else None
        if is_get and query.get(LINK) and self.sessions.has_link(query[LINK], caller.user):
            return _link_page(query[LINK], _redirect_without_login(scope).headers["location"])
        bearer = _bearer(caller.headers)
        token = bearer or (query.get(TOKEN, "") if is_get else "")
        if not token:
            return self.refuse(LoginRefusal(401, USED if query.get(LINK) else LOGIN_NEEDED), caller, scope)
        if refusal := self.token_refusal(token, caller, scope["path"]):
            return self.refuse(refusal, caller, scope)
        return None if bearer else self._with_session(scope, caller, "token", _redirect_without_login(scope))

    def token_refusal(self, token: str, caller: Client, path: str) -> LoginRefusal | None:
        """Return why ``token`` is refused; None if it is accepted. Wrong tokens are counted."""
        if self.wrong.blocked(caller):
            return LoginRefusal(429, SLOWED)
        if self.is_token(token):
            return None
        self.wrong.count(caller, path)
        return LoginRefusal(401, WRONG)

    async def form(self, scope: Scope, receive: Receive, caller: Client) -> Response:
        """Return the response to a login form (with the token or a one-time link), or to a logout."""
        if scope["path"] == LOGOUT:
            for secret in self.secrets(caller):
                self.sessions.end_of(secret)
            response = RedirectResponse("/", status_code=303)
            response.delete_cookie(self.cookie, path="/")
            return response
        fields = await _fields(Request(scope, receive))
        target = fields.get("next", "/")
        if code := fields.get(LINK):
            if not self.sessions.redeem(code, caller.user):
                return self.refuse(LoginRefusal(401, USED), caller, scope, target)
            redirect = _to_requested_address(caller, RedirectResponse(_local(target), status_code=303))
            return self._with_session(scope, caller, "link", redirect)
        if refusal := self.token_refusal(fields.get(TOKEN, ""), caller, scope["path"]):
            return self.refuse(refusal, caller, scope, target)
        return self._with_session(scope, caller, "token", RedirectResponse(_local(target), status_code=303))

    def _with_session(self, scope: Scope, caller: Client, how: str, answer: Response) -> Response:
        """Start a session and return ``answer`` with the cookie of this session."""
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
        """Return the page that asks for the token and then leads to ``target``.

        The default target is the requested address.
        """
        if "text/html" not in caller.headers.get("accept", ""):
            return PlainTextResponse(refusal.sentence, refusal.status)
        target = target or _redirect_without_login(scope).headers["location"]
        problem = "" if refusal.sentence == LOGIN_NEEDED else refusal.sentence  # The page itself says how to log in.
        page = templates.render("login.html", sentence=problem, target=target)
        # With "no-referrer", the form's origin would be "null", which is not a valid origin.
        answer = HTMLResponse(page, refusal.status, {"referrer-policy": "same-origin", "cache-control": "no-store"})
        if scope["type"] == "http" and scope["method"] == "GET" and target != "/" and len(target) <= MAX_REQUESTED_LENGTH:
            secure = scope.get("scheme") == "https"
            answer.set_cookie(
                REQUESTED_COOKIE,
                quote(target, safe=""),
                REQUESTED_COOKIE_S,
                httponly=True,
                samesite="lax",
                secure=secure,
                path="/",
            )
        return answer


def _link_page(code: str, target: str) -> Response:
    """Return the page of a one-time link.

    It logs in by POST, because chat programs fetch every address for a preview.
    """
    page = templates.render("link.html", code=code, target=target)
    headers = {
        "content-security-policy": content_security_policy(page),  # This policy allows the page's own script.
        "referrer-policy": "same-origin",  # With "no-referrer", the form's origin would be "null".
        "cache-control": "no-store",
    }
    return HTMLResponse(page, headers=headers)


def session_cookie_of(token: str) -> str:
    """Return the name of the session's cookie, which differs between two servers on one host."""
    return f"sawtooth_session_{hashlib.sha256(b'sawtooth session name' + token.encode()).hexdigest()[:8]}"


def _bearer(headers: Headers) -> str:
    kind, _, sent = headers.get("authorization", "").partition(" ")
    return sent.strip() if kind.lower() == "bearer" else ""


async def _fields(request: Request) -> dict[str, str]:
    """Return the fields of a short form; empty if the form is too long or does not arrive."""
    try:
        body = await whole_body(request, MAX_FORM_BYTES, MAX_FORM_S)
    except Exception:  # The form was too long or too slow, or the client disconnected.
        return {}
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))


def _redirect_without_login(scope: Scope) -> RedirectResponse:
    """Redirect to the requested address without the parameters that log in."""
    parameters = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query = urlencode([(name, value) for name, value in parameters if name not in (LINK, TOKEN)])
    path = "/" if scope["path"] in (LOGIN, LOGOUT) else scope["path"]
    return RedirectResponse(_local(f"{path}?{query}" if query else path), status_code=303)


def _to_requested_address(caller: Client, answer: RedirectResponse) -> RedirectResponse:
    """Redirect to the address that this browser requested before the login.

    This applies only if the invitation names no page. An example is a comparison that a colleague sent.
    """
    target = unquote(cookie_parser(caller.headers.get("cookie", "")).get(REQUESTED_COOKIE, ""))[:MAX_REQUESTED_LENGTH]
    if answer.headers["location"] == "/" and target:
        answer = RedirectResponse(_local(target), status_code=303)
    answer.delete_cookie(REQUESTED_COOKIE, path="/")
    return answer


def _local(target: str) -> str:
    """Return ``target`` as an address of this server; //host would lead to another server."""
    return "/" + target.lstrip("/\\")
