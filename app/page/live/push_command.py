"""The command that pushes samples to this server.

The page masks the push token. Its button copies the token with the command.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import streamlit as st

from sawtooth.app.server.push import FILE, MASK, command_to_show, push_token
from sawtooth.app.settings import settings

_COMPONENTS = Path(__file__).resolve().parents[2] / "components"
OTHERWISE = f"The browser did not allow copying. The token is in the data folder, in the file {FILE}."


def server_address() -> str:
    """Return this server's address as the browser uses it, without the page's path."""
    parts = urlsplit(st.context.url or "http://localhost:8501/")
    return f"{parts.scheme}://{parts.netloc}"


def show(key: str) -> None:
    """Show the command with a button that copies it; ``key`` distinguishes several of them on a page."""
    options = settings()
    shown = command_to_show(server_address(), options)
    if not options.token:  # Without logins anyone may read the page, so it contains no token to copy.
        st.code(shown, language=None)
        return
    component = st.components.v2.component(
        "sawtooth.copy_command",
        html=(_COMPONENTS / "copy_command.html").read_text(encoding="utf-8"),
        css=(_COMPONENTS / "copy_command.css").read_text(encoding="utf-8"),
        js=(_COMPONENTS / "copy_command.js").read_text(encoding="utf-8"),
    )
    copied = shown.replace(MASK, push_token(options.data.root))
    component(key=f"push-command-{key}", data={"shown": shown, "copied": copied, "otherwise": OTHERWISE})
