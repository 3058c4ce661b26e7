"""Access control: one ASGI middleware in front of pages, API, WebSocket and media.

Every request needs a login (``sawtooth.app.server.login``): a session's cookie, or the token as ``Authorization: Bearer``. This
includes loopback, because other users of a GPU host can reach it as well. ``--no-token`` is for users who are alone on their
machine.

Without a token, the Host header must name this machine, which prevents DNS rebinding. Requests that write must come from our own
pages. Therefore the Origin is checked, and a header is required that no form can send.

Samplers that push always need a token: the push token, which gives access to ``/api/v1/live/`` only, or the server's token.
"""

from __future__ import annotations

import hmac
import logging
from typing import Any
from urllib.parse import quote, urlsplit

import uvicorn.config
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from sawtooth.app import templates
from sawtooth.app.server.flow import Sockets
from sawtooth.app.server.headers import security_headers
from sawtooth.app.server.login import LOGIN, LOGOUT, SLOWED, Authentication, Client, LoginRefusal, WrongTokens, caller_of
from sawtooth.app.server.push import PREFIX as PUSH_PREFIX
from sawtooth.app.server.push import push_token
from sawtooth.app.server.sessions import sessions_of
from sawtooth.app.settings import Settings, is_loopback

log = logging.getLogger("sawtooth")
# Streamlit stores its own uploads in memory without a limit. Sawtooth does not use these paths.
CLOSED_PATHS = ("/_stcore/upload_file", "/_stcore/metrics", "/_stcore/agent")
OPEN_PATHS = ("/_stcore/health",)  # This path returns only "ok". Health checks of containers have no token.
NESTED = ("_stcore", "api", "app", "component", "media", "static")  # First path components that have addresses below them.
PEER = "sawtooth.peer"  # The ASGI scope has the peer's address under this key.
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# A browser sends this header to another origin only after a preflight request, which this server never grants.
WRITE_HEADER = "x-sawtooth"
NO_PUSH = "This is not the server's push token. `sawtooth serve` prints the token, and the Live page shows it."
FAILED = "This is a bug in Sawtooth; the server's log has the details."


class AccessMiddleware:
    """The middleware that checks every HTTP request and WebSocket, and adds the security headers."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.headers = security_headers()
        self._sockets = Sockets()
        self._authentication = Authentication(settings.token, sessions_of(settings.data)) if settings.token else None
        self._wrong = self._authentication.wrong if self._authentication else WrongTokens()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, redirect or refuse a request."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        app: ASGIApp = self.app
        if scope["path"] not in OPEN_PATHS:
            app = await self._answer(scope, receive) or self.app
        try:
            await app(scope, receive, send_with_headers)
        except Exception:
            if has_started:
                raise
            log.exception("a request to %r failed", scope["path"][:80])
            await PlainTextResponse(FAILED, 500)(scope, receive, send_with_headers)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await self._answer(scope, receive) is not None:
            await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
            return
        peer = self._peer(scope)
        self._sockets.opened(peer)
        try:
            await self._sockets.wait_to_open()
            await self.app(scope, self._while_logged_in(scope, self._sockets.rate_limited(receive)), send)
        finally:
            self._sockets.closed(peer)

    def _while_logged_in(self, scope: Scope, receive: Receive) -> Receive:
        """Return a ``receive`` that closes the page when its session ends."""
        authentication, caller = self._authentication, self._caller(scope)
        if authentication is None or not authentication.secrets(caller):
            return receive

        async def receive_until_logout() -> Message:
            message = await receive()
            has_ended = message["type"] == "websocket.receive" and not authentication.logged_in(caller)
            return {"type": "websocket.disconnect", "code": 1008} if has_ended else message

        return receive_until_logout

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response that replaces the app's, or None if the request may continue."""
        headers = Headers(scope=scope)
        if refusal := self._refusal(scope, headers):
            return _refuse(refusal, headers)
        if scope["type"] == "http" and scope["path"].startswith(PUSH_PREFIX):
            refusal = self._push_refusal(scope, headers)
            return _refuse(refusal, headers) if refusal else None
        if self._authentication is not None and not self._trusted_proxy(scope):
            caller = self._caller(scope)
            if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in (LOGIN, LOGOUT):
                return await self._authentication.form(scope, receive, caller)
            if answer := self._authentication.answer(scope, caller):
                return answer
        refusal = self._overload_refusal(scope)
        return _refuse(refusal, headers) if refusal else _redirect_to_screen(scope, headers)

    def _overload_refusal(self, scope: Scope) -> LoginRefusal | None:
        """Return why a request could fill the memory and is refused; None if the request may continue."""
        if scope["path"].startswith(CLOSED_PATHS):
            return LoginRefusal(404, "There is nothing here.")
        if scope["type"] == "websocket" and self._sockets.full(self._peer(scope), trusted=self._trusted_proxy(scope)):
            return LoginRefusal(503, "Too many pages are open.")
        return None

    def _refusal(self, scope: Scope, headers: Headers) -> LoginRefusal | None:
        """Return why a request is refused because of its host, origin or headers; None if it is not."""
        host = headers.get("host", "")
        if not self._host_allowed(_host_name(host)):
            return LoginRefusal(
                400, "This server does not answer to this host name. Set SAWTOOTH_ALLOWED_HOSTS to the server's names."
            )
        address, port = scope.get("server") or ("", None)
        is_reachable = port is not None and not is_loopback(str(address))
        if self.settings.token is None and is_reachable and not self._trusted_proxy(scope):
            return LoginRefusal(403, "This server listens beyond this machine without a token. Start it without --no-token.")
        writes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        origin = headers.get("origin")
        if writes and origin is not None and _netloc(origin) != host.lower():
            return LoginRefusal(403, "This request came from another site's page.")
        is_push = scope["path"].startswith(PUSH_PREFIX)  # A push needs an Authorization header, which no form can send either.
        if writes and scope["path"].startswith("/api/") and not is_push and WRITE_HEADER not in headers:
            return LoginRefusal(403, "Requests that write need the header X-Sawtooth: 1.")
        return None

    def _host_allowed(self, name: str) -> bool:
        if self.settings.allowed_hosts:
            return name in self.settings.allowed_hosts or is_loopback(name)
        # With a token, every name is safe: the page of a DNS-rebinding attack has no cookie, so its requests are refused below.
        return is_loopback(name) or self.settings.token is not None

    def _push_refusal(self, scope: Scope, headers: Headers) -> LoginRefusal | None:
        """Return why a push request is refused; None if it has the push token or the server's token."""
        if not self._wrong.none_sent and self._wrong.blocked(self._caller(scope)):
            return LoginRefusal(429, SLOWED)
        kind, _, sent = headers.get("authorization", "").partition(" ")
        accepted = [push_token(self.settings.data.root), *([self.settings.token] if self.settings.token else [])]
        matches = [hmac.compare_digest(sent.strip().encode(), token.encode()) for token in accepted]
        if kind.lower() == "bearer" and any(matches):
            return None
        self._wrong.count(self._caller(scope), PUSH_PREFIX)
        return LoginRefusal(401, NO_PUSH)

    def _caller(self, scope: Scope) -> Client:
        return caller_of(scope, scope.get(PEER, scope.get("client")))

    def _peer(self, scope: Scope) -> str:
        """Return the address from which a request came; "" if it is not known."""
        peer = scope.get(PEER, scope.get("client"))
        return str(peer[0]) if peer is not None else ""

    def _trusted_proxy(self, scope: Scope) -> bool:
        return self._peer(scope) in self.settings.trusted_proxies


def _redirect_to_screen(scope: Scope, headers: Headers) -> Response | None:
    """Redirect a browser from an address below a screen, such as /verdict/extra, to the screen.

    A page at this address would not find its scripts and would remain blank.
    """
    first, *below = [part for part in scope["path"].split("/") if part] or [""]
    is_page = scope["type"] == "http" and scope["method"] == "GET" and "text/html" in headers.get("accept", "")
    if not below or not is_page or first in NESTED:
        return None
    query = scope.get("query_string", b"").decode("latin-1")
    return RedirectResponse(f"/{quote(first, safe='')}{f'?{query}' if query else ''}")


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


class PeerMiddleware(ProxyHeadersMiddleware):
    """The middleware that stores the address from which a request came.

    For requests from this machine, uvicorn replaces this address with the address in X-Forwarded-For.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Store the peer, then do what uvicorn does."""
        scope[PEER] = scope.get("client")
        await super().__call__(scope, receive, send)


def keep_peers() -> None:
    """Make uvicorn store the addresses from which requests come; call it before uvicorn wraps the app."""
    uvicorn.config.ProxyHeadersMiddleware = PeerMiddleware  # type: ignore[attr-defined]  # replacing it is the point


def _refuse(refusal: LoginRefusal, headers: Headers) -> Response:
    if "text/html" not in headers.get("accept", ""):
        return PlainTextResponse(refusal.sentence, refusal.status)
    return HTMLResponse(templates.render("refusal.html", sentence=refusal.sentence), refusal.status)
