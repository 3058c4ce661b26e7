"""The headers that tell a browser what a page of this server may do and who may embed it."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path


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


def security_headers() -> dict[str, str]:
    """Return the headers of every response."""
    import streamlit

    index = Path(streamlit.__file__).with_name("static") / "index.html"
    return {
        "content-security-policy": content_security_policy(index.read_text(encoding="utf-8") if index.exists() else ""),
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        # Open in Perfetto passes the trace to the window that it opens
        "cross-origin-opener-policy": "same-origin-allow-popups",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
        "x-robots-tag": "noindex",
    }
