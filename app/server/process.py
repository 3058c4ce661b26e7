"""The running server: its settings at the start, and the objects that exist as long as it runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import threading
import time
import webbrowser
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any
from urllib.request import urlopen

from sawtooth.app.jobs.bundled_examples import import_bundled
from sawtooth.app.jobs.leftovers import remove_leftovers
from sawtooth.app.jobs.queue import Jobs
from sawtooth.app.served_address import HEALTH_PATH, ServedAddress, keep_address
from sawtooth.app.server.local_sampler import local_sampler
from sawtooth.app.server.log_lines import limit_lines
from sawtooth.app.server.push import command_to_print
from sawtooth.app.server.slow_clients import allow_many_files, end_slow_clients, running_servers
from sawtooth.app.server.start import OPEN, link_to, url_of
from sawtooth.app.server.tokens import VIEWERS, stored_token
from sawtooth.app.settings import Settings, settings
from sawtooth.ingest.files import remove_all_abandoned_drafts
from sawtooth.ingest.schema import DataFolder

log = logging.getLogger("sawtooth")
MIN_DRAFT_AGE_S = 5  # A draft is locked within milliseconds after its creation. An older draft without a lock has no owner.
PUSH_THREADS = 4  # Threads that write pushes. Pages and the rest of the API have other threads.
MAX_START_S = 60  # A cold start on a slow disk takes 10 seconds. After a minute, the browser is no longer opened.


@lru_cache(maxsize=1)
def jobs() -> Jobs:
    """Return this server's ingest jobs."""
    return Jobs(settings())


@lru_cache(maxsize=1)
def push_threads() -> ThreadPoolExecutor:
    """Return the threads that write what samplers push."""
    return ThreadPoolExecutor(PUSH_THREADS, "push")


def end_push_threads() -> None:
    """End the threads that write pushes, after they have written everything to the disk."""
    if push_threads.cache_info().currsize:
        push_threads().shutdown()
        push_threads.cache_clear()


def started_settings() -> Settings:
    """Return the settings of this server process, with the token unless ``--no-token`` is set."""
    options = settings()
    if not options.token and not options.no_token:
        try:
            os.environ["SAWTOOTH_TOKEN"] = stored_token(options.data.root, VIEWERS, "The token")
        except OSError:  # The disk is full or read-only. Existing data can still be viewed.
            os.environ["SAWTOOTH_TOKEN"] = secrets.token_urlsafe(24)
        settings.cache_clear()
    return settings()


def listening_address() -> ServedAddress:
    """Return the address and port on which this server listens."""
    from streamlit import config

    address = config.get_option("server.address") or "0.0.0.0"  # 0.0.0.0 is Streamlit's own default.
    return ServedAddress(address, int(config.get_option("server.port")), bool(config.get_option("server.sslCertFile")))


def announce() -> None:
    """Print how to open this server, and open it if requested."""
    options, served = settings(), listening_address()
    url = url_of(served.address, served.port, secure=served.secure)
    print(f"Sawtooth: {link_to(options.data, url) if options.token else url}", flush=True)
    if options.token:
        print("The link works once; `sawtooth serve --link` prints another.", flush=True)
    with contextlib.suppress(OSError):
        print(f"Watch a GPU from here: {command_to_print(url, options.data.root)}", flush=True)
    if options.mcp:
        print(f"Agents: {url}mcp, with the header Authorization: Bearer and the token.", flush=True)
    print("Stop it with Ctrl-C.", flush=True)
    if os.environ.pop(OPEN, None):
        page = link_to(options.data, url, handed_over=True) if options.token else url
        threading.Thread(target=_open_when_ready, args=(f"{url}{HEALTH_PATH}", page), daemon=True).start()


@contextlib.asynccontextmanager
async def lifespan(_app: Any) -> AsyncIterator[None]:
    """Prepare the data folder, print the address, and stop children at the end."""
    data = settings().data
    try:
        _prepare(data.create())
    except OSError as error:  # The disk is full or read-only. Existing data can still be viewed.
        log.warning("the data folder cannot be written (%s), so only existing runs can be shown", error.strerror)
    announce()
    allow_many_files()
    slow_clients = asyncio.create_task(end_slow_clients(running_servers()))  # A search after the next line finds no server.
    keep_modules_from_collection()
    limit_lines()
    try:
        with keep_address(data, listening_address()):
            yield None
    finally:
        slow_clients.cancel()
        local_sampler().stop()
        jobs().close()
        await asyncio.to_thread(end_push_threads)


def keep_modules_from_collection() -> None:
    """Exclude all objects that exist now from garbage collection.

    Imported libraries have hundreds of thousands of objects, which live as long as the process. Without this, a full
    collection pauses every page for the time that it takes to visit them.
    """
    gc.collect()
    gc.freeze()


def _prepare(data: DataFolder) -> None:
    """Make the data folder private, remove leftovers of killed processes, import bundled recordings."""
    data.root.chmod(0o700)
    remove_leftovers(data.uploads, time.time())
    remove_all_abandoned_drafts(data, older_than_s=MIN_DRAFT_AGE_S)
    import_bundled(jobs(), data, again=settings().demo)


def _open_when_ready(health: str, url: str) -> None:
    deadline = time.monotonic() + MAX_START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urlopen(health, timeout=1):
            webbrowser.open(url)
            return
        time.sleep(0.2)
