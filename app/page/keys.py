"""The search (Ctrl-K), the keyboard shortcuts and quick links, which run in the browser on every page.

/ searches the page, j and k move through a list, ? shows the shortcuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

_COMPONENTS = Path(__file__).resolve().parents[1] / "components"


def listen(screens: Sequence[tuple[str, str]], run: str | None) -> None:
    """Show the button of the search, activate the shortcuts, and mark the link to this page.

    ``screens`` contains the names and addresses that the search offers at once. The search asks the server for runs, and for
    the findings and kernels of ``run``.
    """
    component = st.components.v2.component(
        "sawtooth.keys",
        html=(_COMPONENTS / "keys.html").read_text(encoding="utf-8"),
        css=(_COMPONENTS / "keys.css").read_text(encoding="utf-8"),
        js=(_COMPONENTS / "keys.js").read_text(encoding="utf-8"),
    )
    component(key="keys", height="content", data={"screens": list(screens), "run": run})
