"""Find the user of this machine who opened a connection.

On a shared host, all users can connect through loopback.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from pathlib import Path

TABLES = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
ESTABLISHED = b"01"
USER_COLUMN = 7  # /proc/net/tcp has the user's number in this column.


def user_of(client: tuple[str, int] | None, server: tuple[str, int] | None) -> int | None:
    """Return the id of the user whose socket connects from ``client``.

    The result is None if ``client`` is not a loopback address, or if the system does not report the user.
    """
    if client is None or server is None or not isinstance(server[1], int):
        return None
    try:
        client_address, server_address = _address(client[0]), _address(server[0])
        if not client_address.is_loopback:
            return None
        table = TABLES[client_address.version].read_bytes()
    except (ValueError, OSError):
        return None
    connection = (_table_entry(client_address, client[1]), _table_entry(server_address, server[1]), ESTABLISHED)
    start = table.find(b" %s %s %s " % connection)
    if start < 0:
        return None
    return int(table[table.rfind(b"\n", 0, start) + 1 :].split(None, USER_COLUMN + 1)[USER_COLUMN])


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.split("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _table_entry(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> bytes:
    """Return an address and a port as in the kernel's table.

    The table has 32-bit words in the machine's byte order.
    """
    packed = socket.inet_pton(socket.AF_INET if address.version == 4 else socket.AF_INET6, str(address))
    words = (packed[i : i + 4] for i in range(0, len(packed), 4))
    return b"".join(b"%08X" % int.from_bytes(word, sys.byteorder) for word in words) + b":%04X" % port
