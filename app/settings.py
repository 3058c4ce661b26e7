"""The settings of a server, read once from the environment, which ``sawtooth serve`` fills."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import DataFolder
from sawtooth.installation import default_data_folder

GB = 1_000_000_000  # Number of bytes in a gigabyte.
DEFAULT_UPLOAD_CAP = 32 * GB  # A long trace of one rank has 5 GB; DISK_RESERVE protects the disk.
DISK_RESERVE = GB // 2  # Space that must stay free after an upload, for the recording, the derived file and the system.
MIN_TOKEN_LENGTH = 12  # Characters: a shorter token could be guessed by trying.


@dataclass(frozen=True)
class Settings:
    """The options of this server.

    ``token`` is None until the server has started; afterwards it is None only with ``no_token``. ``external_links`` shows the
    only button that sends data to another site. ``mcp`` serves agents at /mcp.
    """

    data: DataFolder
    token: str | None = None
    no_token: bool = False
    external_links: bool = True
    demo: bool = False
    mcp: bool = False
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    upload_cap_bytes: int = DEFAULT_UPLOAD_CAP
    disk_reserve_bytes: int = DISK_RESERVE
    keep_source: bool = True


def settings_from(environment: dict[str, str]) -> Settings:
    """Return the settings from environment variables; raises UsageError for an invalid value."""
    token = environment.get("SAWTOOTH_TOKEN") or None
    if token is not None and len(token) < MIN_TOKEN_LENGTH:
        raise UsageError(
            f"The token has {len(token)} characters, but needs at least {MIN_TOKEN_LENGTH}. Without a token, Sawtooth makes one."
        )
    data = environment.get("SAWTOOTH_DATA")
    return Settings(
        data=DataFolder(Path(data).expanduser().absolute() if data else default_data_folder().absolute()),
        token=token,
        no_token=environment.get("SAWTOOTH_NO_TOKEN", "") not in ("", "0"),
        external_links=environment.get("SAWTOOTH_NO_EXTERNAL", "") in ("", "0"),
        demo=environment.get("SAWTOOTH_DEMO", "") not in ("", "0"),
        mcp=environment.get("SAWTOOTH_MCP", "") not in ("", "0"),
        allowed_hosts=_split(environment.get("SAWTOOTH_ALLOWED_HOSTS")),
        trusted_proxies=_split(environment.get("SAWTOOTH_TRUSTED_PROXIES")),
        upload_cap_bytes=_upload_cap(environment.get("SAWTOOTH_MAX_UPLOAD_GB")),
        keep_source=environment.get("SAWTOOTH_NO_KEEP_SOURCE", "") in ("", "0"),
    )


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Return this process's settings."""
    return settings_from(dict(os.environ))


def is_loopback(host: str) -> bool:
    """Return whether ``host`` (a name or an address) can only be reached from this machine."""
    bare = host.strip("[]").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare.split("%")[0]).is_loopback
    except ValueError:
        return False


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip().lower() for part in (text or "").split(",") if part.strip())


def _upload_cap(text: str | None) -> int:
    if not text:
        return DEFAULT_UPLOAD_CAP
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"SAWTOOTH_MAX_UPLOAD_GB is {text!r}. It must be a number of gigabytes.") from None
    if not 0 < value < 1e9:
        raise UsageError(f"SAWTOOTH_MAX_UPLOAD_GB is {text!r}. It must be above 0 and finite.")
    return int(value * GB)
