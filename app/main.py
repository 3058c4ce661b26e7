"""The server: ``streamlit run app/main.py`` or ``sawtooth serve``.

Pages come from ``dashboard.py``, HTTP routes from ``sawtooth.app.api``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if (ROOT / "sawtooth").is_dir() and str(ROOT) not in sys.path:  # A checkout runs its own code, installed or not.
    sys.path.insert(0, str(ROOT))

# The imports below come after the change of the path (E402).
import streamlit as st  # noqa: E402
from starlette.middleware import Middleware  # noqa: E402

from sawtooth.app.api import routes  # noqa: E402
from sawtooth.app.api.mcp import mcp_routes  # noqa: E402
from sawtooth.app.server.access import AccessMiddleware, keep_peers  # noqa: E402
from sawtooth.app.server.flow import limit_scripts  # noqa: E402
from sawtooth.app.server.process import lifespan, started_settings  # noqa: E402


def script_failed(error: Exception) -> None:
    """Log an error that a page did not handle.

    Pages are imported only once the runtime exists, because their caches need it.
    """
    from sawtooth.app.page.frame import script_failed as failed

    failed(error)


keep_peers()
limit_scripts()
options = started_settings()
for_agents, with_agents = mcp_routes(lifespan)
app = st.App(
    Path(__file__).with_name("dashboard.py").resolve(),
    routes=[*routes(), *for_agents],
    middleware=[Middleware(AccessMiddleware, settings=options)],
    lifespan=with_agents,
    on_script_error=script_failed,
)

if __name__ == "__main__":
    app.run()
