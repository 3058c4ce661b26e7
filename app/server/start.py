"""Start the server from the command line, and make links to it."""

from __future__ import annotations

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from sawtooth.app.served_address import ANY_ADDRESS, DEFAULT_ADDRESS, DEFAULT_PORT
from sawtooth.app.server.sessions import sessions_of
from sawtooth.app.server.tokens import VIEWERS, stored_token
from sawtooth.app.settings import is_loopback, settings_from
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import DataFolder

MAIN = Path(__file__).resolve().parents[1] / "main.py"
SERVER_SCRIPT = Path(__file__).with_name("streamlit_server.py")
MAX_PORTS = 20  # Ports that are tried. Nobody runs more servers on one machine.
NO_TOKEN, OPEN = "SAWTOOTH_NO_TOKEN", "SAWTOOTH_OPEN"  # Also read by sawtooth.app.settings and sawtooth.app.server.process.


def environment_for(
    *,
    data: Path | None = None,
    address: str = DEFAULT_ADDRESS,
    token: str | None = None,
    no_token: bool = False,
    external: bool = True,
    demo: bool = False,
    mcp: bool = False,
    open_browser: bool = False,
) -> dict[str, str]:
    """Return the environment of a server process with these options.

    Raises UsageError if the options contradict each other.
    """
    environment = dict(os.environ)
    if no_token and (token or not is_loopback(address)):
        raise UsageError("--no-token is for a server that only you can reach: on this machine, and without --token.")
    if no_token:
        environment.pop("SAWTOOTH_TOKEN", None)
    options = {
        "SAWTOOTH_DATA": str(data.expanduser().absolute()) if data is not None else None,
        "SAWTOOTH_TOKEN": token,
        NO_TOKEN: "1" if no_token else None,
        "SAWTOOTH_NO_EXTERNAL": None if external else "1",
        "SAWTOOTH_DEMO": "1" if demo else None,
        "SAWTOOTH_MCP": "1" if mcp else None,
        OPEN: "1" if open_browser else None,
    }
    environment |= {name: value for name, value in options.items() if value}
    if settings_from(environment).mcp:
        require_mcp()
    return environment


def require_mcp() -> None:
    """Raise UsageError if the packages of the MCP server are missing."""
    if find_spec("mcp") is None:
        raise UsageError("Serving agents needs the package mcp, which is not installed: pip install 'sawtooth[mcp]'.")


def serve(
    *,
    port: int = DEFAULT_PORT,
    address: str = DEFAULT_ADDRESS,
    tls: tuple[Path, Path] | None = None,
    environment: dict[str, str],
) -> None:
    """Replace this process by the server.

    ``tls`` is a certificate and its key. Raises UsageError if the server cannot start.
    """
    _check_port(address, port)
    # With -P, Python does not import a folder called app in the user's working directory.
    command = [sys.executable, "-P", str(SERVER_SCRIPT), str(MAIN), "--server.port", str(port), "--server.address", address]
    if tls is not None:
        command += ["--server.sslCertFile", str(tls[0].absolute()), "--server.sslKeyFile", str(tls[1].absolute())]
    if sys.platform == "win32":  # exec would detach from the console on Windows.
        import subprocess

        raise SystemExit(subprocess.call(command, env=environment))
    os.execve(sys.executable, command, environment)


def url_of(address: str, port: int, path: str = "", *, secure: bool = False) -> str:
    """Return the address of a page of the server, as a browser needs it."""
    host = socket.gethostname() if address in ANY_ADDRESS else address
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{host}:{port}/{path}"


def token_of(data: DataFolder, chosen: str | None = None) -> str:
    """Return the token of a server of this folder: ``chosen``, else SAWTOOTH_TOKEN, else the stored one.

    Raises OSError if a new token cannot be stored.
    """
    return chosen or os.environ.get("SAWTOOTH_TOKEN") or stored_token(data.root, VIEWERS, "The token")


def link_to(data: DataFolder, url: str, *, handed_over: bool = False) -> str:
    """Return ``url`` with a code that logs in one browser, once.

    With ``handed_over``, the code is valid for this user only, because the link is passed to the browser as an argument, which
    other users of this machine can read.
    """
    user = os.getuid() if handed_over and hasattr(os, "getuid") else None
    return f"{url}{'&' if '?' in url else '?'}launch={sessions_of(data).link(user)}"


def first_free_port(first: int = DEFAULT_PORT) -> int:
    """Return the first free port from ``first`` on; ``first`` if none of MAX_PORTS ports is free."""
    for port in range(first, first + MAX_PORTS):
        try:
            _check_port(DEFAULT_ADDRESS, port)
        except UsageError:
            continue
        return port
    return first


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
