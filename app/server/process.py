"""Starting the server, and the objects that live as long as it does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from sawtooth.app.jobs.queue import Jobs, sweep
from sawtooth.app.server.push import push_command, push_token
from sawtooth.app.settings import Settings, is_loopback, settings
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import DataFolder

log = logging.getLogger("sawtooth")
MAIN = Path(__file__).resolve().parents[1] / "main.py"
DEFAULT_PORT = 8501
DEFAULT_ADDRESS = "127.0.0.1"
LOCKED_SECONDS = 5  # a draft is locked within milliseconds of its making; older ones without a lock belong to nobody
START_SECONDS = 60  # a cold start on a slow disk takes 10; after a minute the browser is not opened any more


@lru_cache(maxsize=1)
def jobs() -> Jobs:
    """Return this server's ingest jobs."""
    return Jobs(settings())


def token_for(address: str, token: str | None) -> str | None:
    """Return the token a server on ``address`` needs: the given one, a fresh one beyond this machine, none on loopback."""
    if token:
        return token
    return None if is_loopback(address) else secrets.token_urlsafe(24)


def environment_for(
    *,
    data: Path | None = None,
    address: str = DEFAULT_ADDRESS,
    token: str | None = None,
    external: bool = True,
    demo: bool = False,
) -> dict[str, str]:
    """Return the environment a server process needs for these options. Raises UsageError for a token that is too short."""
    environment = dict(os.environ)
    if data is not None:
        environment["SAWTOOTH_DATA"] = str(data.expanduser().absolute())
    needed = token_for(address, token or environment.get("SAWTOOTH_TOKEN"))
    if needed:
        environment["SAWTOOTH_TOKEN"] = needed
    if not external:
        environment["SAWTOOTH_NO_EXTERNAL"] = "1"
    if demo:
        environment["SAWTOOTH_DEMO"] = "1"
    from sawtooth.app.settings import settings_from

    settings_from(environment)
    return environment


def serve(
    *,
    port: int = DEFAULT_PORT,
    address: str = DEFAULT_ADDRESS,
    data: Path | None = None,
    external: bool = True,
    token: str | None = None,
    demo: bool = False,
    open_browser: bool = False,
) -> None:
    """Run the server in place of this process; does not return. Raises UsageError when it cannot start."""
    environment = environment_for(data=data, address=address, token=token, external=external, demo=demo)
    _check_port(address, port)
    url = url_of(address, port, environment.get("SAWTOOTH_TOKEN"))
    from sawtooth.app.settings import settings_from

    token_to_push = push_token(settings_from(environment).data.root)
    print(f"Sawtooth: {url}", flush=True)
    print(f"Watch a GPU from here: {push_command(url_of(address, port, None), token_to_push)}", flush=True)
    print("Stop it with Ctrl-C.", flush=True)
    environment["SAWTOOTH_URL"] = ""  # printed already
    if open_browser:
        environment["SAWTOOTH_OPEN"] = url
    # -P: a folder called app where the user stands must not be taken for ours
    python = [sys.executable, "-P", "-m"]
    command = [*python, "streamlit", "run", str(MAIN), "--server.port", str(port), "--server.address", address]
    if sys.platform == "win32":  # exec there detaches from the console
        import subprocess

        raise SystemExit(subprocess.call(command, env=environment))
    os.execve(sys.executable, command, environment)


def url_of(address: str, port: int, token: str | None) -> str:
    """Return the link that opens the server in a browser."""
    host = socket.gethostname() if address in ("0.0.0.0", "::", "") else address
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{port}/" + (f"?token={token}" if token else "")


def _check_port(address: str, port: int) -> None:
    if not 0 < port < 65536:
        raise UsageError(f"{port} is not a port; ports are 1 to 65535.")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise UsageError(
                f"Port {port} on {address} cannot be used ({error.strerror}). Choose another: sawtooth serve --port {port + 1}"
            ) from None


def started_settings(bound_address: str | None) -> Settings:
    """Return the settings of this server process, bound to ``bound_address`` by Streamlit's own configuration.

    ``streamlit run`` and containers come here without ``sawtooth serve``: beyond loopback a token is made.
    """
    address = bound_address or "0.0.0.0"  # Streamlit's own default when nothing is configured
    if not settings().token and (token := token_for(address, None)):
        os.environ["SAWTOOTH_TOKEN"] = token
        settings.cache_clear()
    os.environ.setdefault("SAWTOOTH_URL", url_of(address, _port(), settings().token))
    return settings()


def _port() -> int:
    from streamlit import config

    return int(config.get_option("server.port"))


@contextlib.asynccontextmanager
async def lifespan(_app: Any) -> AsyncIterator[None]:
    """Prepare the data folder, bring in the bundled recordings, open the browser; stop the children at the end."""
    # here and not above: `sawtooth serve` needs none of it before the server is in its place
    from sawtooth.app.server.local_sampler import local_sampler
    from sawtooth.app.server.slow_clients import allow_many_files, end_slow_clients

    data = settings().data
    try:
        _prepare(data.create())
    except OSError as error:  # a full or read-only disk: what is there can still be looked at
        log.warning("the data folder cannot be written (%s): only what it holds already can be shown", error.strerror)
    if url := os.environ.pop("SAWTOOTH_URL", None):
        print(f"Sawtooth: {url}\nStop it with Ctrl-C.", flush=True)
    if url := os.environ.pop("SAWTOOTH_OPEN", None):
        threading.Thread(target=_open_when_ready, args=(url,), daemon=True).start()
    allow_many_files()
    slow_clients = asyncio.create_task(end_slow_clients())
    try:
        yield None
    finally:
        slow_clients.cancel()
        local_sampler().stop()
        jobs().close()


def _prepare(data: DataFolder) -> None:
    """Close the data folder to others, remove what killed processes left in it, and bring in the bundled recordings."""
    from sawtooth.app.jobs.bundled import import_bundled
    from sawtooth.ingest.files import sweep_all

    data.root.chmod(0o700)
    sweep(data.uploads, time.time())
    sweep_all(data, older_than_s=LOCKED_SECONDS)
    import_bundled(jobs(), data)


def _open_when_ready(url: str) -> None:
    health = url.split("?")[0] + "_stcore/health"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urlopen(health, timeout=1):
            webbrowser.open(url)
            return
        time.sleep(0.2)
