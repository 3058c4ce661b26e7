"""What runs in the browser on every page: the search (Ctrl-K), shortcuts, and quick links.

/ searches the page, j and k move through a list, ? shows the shortcuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

_HERE = Path(__file__).resolve().parents[1] / "components"


def listen(screens: Sequence[tuple[str, str]], run: str | None) -> None:
    """Show the button of the search, activate the shortcuts, and mark the link to this page.

    ``screens`` are the names and addresses that the search offers at once. For runs, and for the findings and kernels of
    ``run``, it asks the server.
    """
    component = st.components.v2.component(
        "sawtooth.keys",
        html=(_HERE / "keys.html").read_text(encoding="utf-8"),
        css=(_HERE / "keys.css").read_text(encoding="utf-8"),
        js=(_HERE / "keys.js").read_text(encoding="utf-8"),
    )
    component(key="keys", height="content", data={"screens": list(screens), "run": run})
