"""The Streamlit app, its HTTP routes and the command line."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def _refuse_strangers() -> None:
    """Stop with one sentence when another package called ``ingest`` or ``analysis`` would be imported in place of ours."""
    ours = Path(__file__).resolve().parents[1]
    for name in ("ingest", "analysis"):
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve().parents[1] if spec and spec.origin else None
        if found != ours:
            where = f"the one in {found}" if found else "nothing"
            raise SystemExit(
                f"Sawtooth needs its own package {name!r} in {ours}, but Python finds {where}. "
                f"Another distribution has taken the name: install Sawtooth in a virtual environment of its own."
            )


_refuse_strangers()
