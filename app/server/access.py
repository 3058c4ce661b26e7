"""Who may talk to the server: one ASGI middleware before pages, API, WebSocket and media.

On a loopback address no token is needed, but the Host header must name this machine (against DNS rebinding) and requests
that write must come from our own pages (Origin, and a header that no form can send). On any other address every request needs
the token, as in Jupyter: once as ``?token=`` in the link, which becomes a cookie, or as ``Authorization: Bearer``.
Samplers that push need a token on any address: the push token, which opens ``/api/v1/live/`` only, or the server's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import uvicorn.config
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from sawtooth.app import templates
from sawtooth.app.server.flow import Sockets
from sawtooth.app.server.push import PREFIX as PUSH_PREFIX
from sawtooth.app.server.push import push_token
from sawtooth.app.settings import Settings, is_loopback

# Streamlit's own uploads lie in memory, as many as anyone sends; nothing of ours uses these.
CLOSED_PATHS = ("/_stcore/upload_file", "/_stcore/metrics", "/_stcore/agent")
OPEN_PATHS = ("/_stcore/health",)  # says "ok" and nothing else: container health checks have no token
PEER = "sawtooth.peer"  # key of the scope
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
WRITE_HEADER = "x-sawtooth"  # a browser sends it across origins only after a preflight, which we never grant
NO_PUSH = "This is not the server's push token. sawtooth serve prints it, and the Live page shows it."
COOKIE_SECONDS = 30 * 24 * 3600  # as long as a link is likely to be used again


@dataclass(frozen=True)
class Refusal:
    """Why a request is not served: the status and a sentence for people."""

    status: int
    sentence: str


def content_security_policy(index_html: str = "") -> str:
    """Return the policy the app passes: everything from here, scripts only from files, blobs (components) and the index page's own lines."""
    inline = re.findall(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", index_html, flags=re.DOTALL)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in inline)
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' blob: {hashes}".strip(),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "media-src 'self' data: blob:",
            "connect-src 'self' ws: wss:",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


def security_headers() -> dict[str, str]:
    """Return the headers every answer carries."""
    import streamlit

    index = Path(streamlit.__file__).with_name("static") / "index.html"
    return {
        "content-security-policy": content_security_policy(index.read_text(encoding="utf-8") if index.exists() else ""),
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
        "x-robots-tag": "noindex",
    }


class AccessMiddleware:
    """Checks every HTTP request and WebSocket before anything else sees it, and adds the security headers."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.headers = security_headers()
        self._sockets = Sockets()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, redirect or refuse."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        guarded = self._with_headers(send) if scope["type"] == "http" else send
        if scope["path"] in OPEN_PATHS:
            await self.app(scope, receive, guarded)
            return
        answer = self._answer(scope)
        if answer is None and scope["type"] == "websocket":
            peer = self._peer(scope)
            self._sockets.opened(peer)
            try:
                await self.app(scope, self._sockets.paced(receive), guarded)
            finally:
                self._sockets.closed(peer)
        elif answer is None:
            await self.app(scope, receive, guarded)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        else:
            await answer(scope, receive, guarded)

    def _with_headers(self, send: Send) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        return send_with_headers

    def _answer(self, scope: Scope) -> Response | None:
        """Return what to answer in place of the app, or None to let the request through."""
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is None and scope["type"] == "http" and scope["path"].startswith(PUSH_PREFIX):
            return None if self._may_push(headers) else _refuse(Refusal(401, NO_PUSH), headers)
        if refusal is None and self.settings.token is not None and not self._trusted_proxy(scope):
            answer = self._token_answer(scope, headers, self.settings.token)
            if answer is not None:
                return answer
        refusal = refusal or self._closed(scope)
        return _refuse(refusal, headers) if refusal else None

    def _closed(self, scope: Scope) -> Refusal | None:
        """Refuse what could fill the memory."""
        if scope["path"].startswith(CLOSED_PATHS):
            return Refusal(404, "There is nothing here.")
        if scope["type"] == "websocket" and self._sockets.full(self._peer(scope), trusted=self._trusted_proxy(scope)):
            return Refusal(503, "Too many pages are open.")
        return None

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        host = headers.get("host", "")
        if not self._host_allowed(_host_name(host)):
            return Refusal(
                400, "This server does not answer to that host name. Set SAWTOOTH_ALLOWED_HOSTS to the names it has."
            )
        local = scope.get("server") or ("", None)
        if (
            self.settings.token is None
            and local[1] is not None
            and not is_loopback(str(local[0]))
            and not self._trusted_proxy(scope)
        ):
            return Refusal(
                403,
                "This server listens beyond this machine without a token. Start it with: sawtooth serve --address … --token …",
            )
        writes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        origin = headers.get("origin")
        if writes and origin is not None and _netloc(origin) != host.lower():
            return Refusal(403, "This request came from another site's page.")
        pushed = scope["path"].startswith(PUSH_PREFIX)  # no form can send the Authorization header that these need either
        if writes and scope["path"].startswith("/api/") and not pushed and WRITE_HEADER not in headers:
            return Refusal(403, "Requests that write need the header X-Sawtooth: 1.")
        return None

    def _host_allowed(self, name: str) -> bool:
        if self.settings.allowed_hosts:
            return name in self.settings.allowed_hosts or is_loopback(name)
        return is_loopback(name) or self.settings.token is not None  # with a token a rebound page still lacks the cookie

    def _may_push(self, headers: Headers) -> bool:
        """Samplers have no cookie: each of their requests carries the push token, which opens nothing else, or the server's own."""
        kind, _, sent = headers.get("authorization", "").partition(" ")
        accepted = [push_token(self.settings.data.root), *([self.settings.token] if self.settings.token else [])]
        fits = [hmac.compare_digest(sent.strip().encode(), token.encode()) for token in accepted]
        return kind.lower() == "bearer" and any(fits)

    def _peer(self, scope: Scope) -> str:
        """Return the address that a request came from, "" where it has none."""
        peer = scope.get(PEER, scope.get("client"))
        return str(peer[0]) if peer is not None else ""

    def _trusted_proxy(self, scope: Scope) -> bool:
        return self._peer(scope) in self.settings.trusted_proxies

    def _token_answer(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        name, value = cookie_of(token)
        # not http.cookies: that drops all of them where another server of this host has set one such as x={"a": 1}
        if hmac.compare_digest(cookie_parser(headers.get("cookie", "")).get(name, "").encode(), value.encode()):
            return None if "token" not in _query(scope) or scope["type"] == "websocket" else _without_token(scope)
        kind, _, sent = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(sent.strip().encode(), token.encode()):
            return None
        offered = _query(scope).get("token", "")
        if (
            offered
            and scope["type"] == "http"
            and scope["method"] in SAFE_METHODS
            and hmac.compare_digest(offered.encode(), token.encode())
        ):
            answer = _without_token(scope)
            secure = scope.get("scheme") == "https"
            answer.set_cookie(name, value, max_age=COOKIE_SECONDS, httponly=True, samesite="lax", secure=secure, path="/")
            return answer
        return _refuse(Refusal(401, "This server needs its token: open the link that it printed when it started."), headers)


def cookie_of(token: str) -> tuple[str, str]:
    """Return name and value of the cookie that stands for ``token``: two servers on one host do not overwrite each other's."""
    digest = hashlib.sha256(b"sawtooth cookie name\0" + token.encode()).hexdigest()
    return f"sawtooth_{digest[:8]}", hmac.new(token.encode(), b"sawtooth cookie", hashlib.sha256).hexdigest()


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))


def _without_token(scope: Scope) -> RedirectResponse:
    rest: Iterable[tuple[str, str]] = [
        pair for pair in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True) if pair[0] != "token"
    ]
    query = urlencode(list(rest))
    path = "/" + scope["path"].lstrip("/\\")  # never //host, which would leave
    return RedirectResponse(f"{path}?{query}" if query else path, status_code=303)


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
    """Keeps the address a request came from: uvicorn replaces it by what X-Forwarded-For claims when it came from this machine."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Remember the peer, then do what uvicorn does."""
        scope[PEER] = scope.get("client")
        await super().__call__(scope, receive, send)


def keep_peers() -> None:
    """Make uvicorn, which wraps the app once it is imported, keep the peers' addresses."""
    uvicorn.config.ProxyHeadersMiddleware = PeerMiddleware  # type: ignore[misc]  # replacing it is the point


def _refuse(refusal: Refusal, headers: Headers) -> Response:
    if "text/html" not in headers.get("accept", ""):
        return PlainTextResponse(refusal.sentence, refusal.status)
    page = templates.render("refusal.html", sentence=refusal.sentence, asks_for_token=refusal.status == 401)
    return HTMLResponse(page, refusal.status)
