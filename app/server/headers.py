"""The index page, and the headers that tell a browser what it may do and who may embed it."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from pathlib import Path

from sawtooth.app import templates

# Without a base address, Streamlit's page first sends two requests to addresses below the page's own, and both fail.
_BASE_ADDRESS = "<script>window.__streamlit = { BACKEND_BASE_URL: location.origin + '/' };</script>"

# Streamlit loads an element's code only when a page first shows the element. The element then appears late and moves its neighbours.
# Therefore the code of these elements is loaded with the page. _LARGE_ELEMENTS have low priority, because few pages have them.
_ELEMENTS = (
    "Html",
    "BidiComponent",
    "PageLink",
    "Selectbox",
    "ButtonGroup",
    "StreamlitMarkdown",
    "Checkbox",
    "TextInput",
    "DownloadButton",
)
_LARGE_ELEMENTS = ("DataFrame", "PlotlyChart")

# These files are inserted at the end of the body, so that they override Streamlit's rules and apply from the first paint.
# poster.css comes first, because the page's rules for narrow screens override it.
_STYLES = ("textures.css", "poster.css", "page.css", "first_paint.css")
_IMPORT = re.compile(r"""(?:from|import)\s*["']\./([\w.-]+\.js)["']""")
_IMPORTS_CHARACTERS = 20_000  # Imports are searched in this many characters at the beginning of a file.


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
    """Return Streamlit's index page with our address, styles and links to early code; "" if missing."""
    import streamlit

    index = Path(streamlit.__file__).with_name("static") / "index.html"
    if not index.exists():
        return ""
    style = "\n".join((templates.FOLDER / name).read_text(encoding="utf-8") for name in _STYLES)
    page = index.read_text(encoding="utf-8").replace("<head>", f"<head>{_BASE_ADDRESS}", 1)
    page = page.replace("</body>", f"<style>{style}</style></body>", 1)
    return page.replace("</head>", f"{_loaded_early(index.with_name('static') / 'js', page)}</head>", 1)


def _loaded_early(folder: Path, page: str) -> str:
    """Return links that load the code of our elements together with the page."""
    links = []
    scripts = set(re.findall(r"static/js/([\w.-]+\.js)", page))
    for names, priority in ((_ELEMENTS, "auto"), (_LARGE_ELEMENTS, "low")):
        waiting = [path.name for name in names for path in folder.glob(f"{name}.*.js")]
        while waiting:
            if (name := waiting.pop(0)) in scripts or not (folder / name).exists():
                continue
            scripts.add(name)
            links.append(f'<link rel="modulepreload" crossorigin fetchpriority="{priority}" href="./static/js/{name}">')
            with (folder / name).open(encoding="utf-8") as file:
                waiting += _IMPORT.findall(file.read(_IMPORTS_CHARACTERS))
    return "".join(links)


def security_headers() -> dict[str, str]:
    """Return the headers of every response."""
    return {
        "content-security-policy": content_security_policy(index_page()),
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        # Open in Perfetto passes the trace to the window that it opens.
        "cross-origin-opener-policy": "same-origin-allow-popups",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
        "x-robots-tag": "noindex",
    }
