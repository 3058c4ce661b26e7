"""The addresses of the running servers of a data folder.

Each server writes its address into a file and locks the file. The lock shows that the server runs, so a killed server leaves no
false address. ``python -m sawtooth.app.served_address`` exits with 0 if a server answers; it is the health check of the
container image.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import msgspec

from sawtooth.ingest.locks import exclusive_lock, is_locked
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.typed import from_json
from sawtooth.installation import default_data_folder

DEFAULT_PORT = 8501  # Streamlit uses this port by default.
DEFAULT_ADDRESS = "127.0.0.1"
# Addresses for all interfaces, and how this machine reaches such a server.
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
HEALTH_PATH = "_stcore/health"
HEALTH_S = 4.0  # Time in which a busy server must answer. The image's health check allows five seconds.


class ServedAddress(msgspec.Struct, frozen=True):
    """A server's host, address and port, and whether it uses TLS."""

    address: str = DEFAULT_ADDRESS
    port: int = DEFAULT_PORT
    secure: bool = False
    host: str = ""

    def url(self, path: str = "") -> str:
        """Return the address of a page for a browser on this machine."""
        address = ANY_ADDRESS.get(self.address, self.address)
        address = f"[{address}]" if ":" in address else address
        return f"{'https' if self.secure else 'http'}://{address}:{self.port}/{path}"

    def answers(self, within_s: float = HEALTH_S) -> bool:
        """Return whether the server answers a health check."""
        # The certificate may be self-signed or name another host. The request contains no secret.
        unchecked = ssl._create_unverified_context() if self.secure else None
        try:
            with urlopen(self.url(HEALTH_PATH), timeout=within_s, context=unchecked):
                return True
        except (OSError, ValueError):
            return False


@contextmanager
def keep_address(data: DataFolder, served: ServedAddress) -> Iterator[None]:
    """Store the address of this server in ``data`` while the block runs.

    If the folder cannot be written, no address is stored.
    """
    path = _file(data, served.port)
    content = msgspec.json.encode(msgspec.structs.replace(served, host=socket.gethostname()))
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file = stack.enter_context(os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b"))
            stack.enter_context(exclusive_lock(file, wait=False))
            stack.callback(path.unlink, missing_ok=True)
            file.truncate()
            file.write(content)
            file.flush()
        yield


def addresses(data: DataFolder) -> list[ServedAddress]:
    """Return the addresses of the running servers of ``data`` on this machine, the last started one first."""
    listening = []
    for path in data.access.glob("served-*.json"):
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError), path.open("rb") as file:
            served = from_json(file.read(), ServedAddress)
            if is_locked(file) and served.host == socket.gethostname():
                listening.append((path.stat().st_mtime_ns, served))
    return [served for _, served in sorted(listening, key=lambda time_and_address: time_and_address[0], reverse=True)]


def answering_address(data: DataFolder, within_s: float) -> ServedAddress | None:
    """Return the first of ``addresses`` at which a server answers, or None."""
    return next((served for served in addresses(data) if served.answers(within_s)), None)


def _file(data: DataFolder, port: int) -> Path:
    return data.access / f"served-{port}.json"


def main() -> int:
    """Return 0 if a server of the data folder answers; without a stored address, try the default address."""
    servers = addresses(DataFolder(default_data_folder())) or [ServedAddress()]
    return 0 if any(served.answers() for served in servers) else 1


if __name__ == "__main__":
    sys.exit(main())
