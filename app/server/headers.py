"""The index page, and the headers that tell a browser what it may do and who may embed it."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from pathlib import Path

from sawtooth.app import templates

# Without a base address, Streamlit's page first asks below its own address, where nothing answers: two failed requests on each page.
_BASE_ADDRESS = "<script>window.__streamlit = { BACKEND_BASE_URL: location.origin + '/' };</script>"


def content_security_policy(index_html: str = "") -> str:
    """Return the content security policy of the app.

    Everything must come from this server. Scripts may come only from files, blobs (components) and the index page's own lines.
    """
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
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


@lru_cache(maxsize=1)
def index_page() -> str:
    """Return Streamlit's index page with the server's address and the first styles; "" if missing."""
    import streamlit

    index = Path(streamlit.__file__).with_name("static") / "index.html"
    if not index.exists():
        return ""
    style = (templates.FOLDER / "first_paint.css").read_text(encoding="utf-8")
    return index.read_text(encoding="utf-8").replace("<head>", f"<head>{_BASE_ADDRESS}<style>{style}</style>", 1)


def security_headers() -> dict[str, str]:
    """Return the headers of every response."""
    return {
        "content-security-policy": content_security_policy(index_page()),
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        # Open in Perfetto passes the trace to the window that it opens
        "cross-origin-opener-policy": "same-origin-allow-popups",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
        "x-robots-tag": "noindex",
    }
