"""What several test files use."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sawtooth.ingest.schema import DataFolder
from tests.support import common_folder
from tests.support.threads import threads_end as threads_end  # for every module

# Before anything loads PyTorch: each worker of pytest, and each training that it starts, would otherwise have a thread for every core, which spin while
# they wait for each other; small steps then took twice as long and more.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and common_folder.PLACE not in os.environ:  # workers use their controller's
        config.add_cleanup(common_folder.make())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the modules that drive a browser over the others: they wait more than they compute, and last or side by side they leave the machine idle."""
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    waiting = {path for path, tests in modules.items() if any(test.get_closest_marker("browser") for test in tests)}
    order = [path for path in modules if path not in waiting]
    apart = len(order) // (len(waiting) + 1) or 1
    for place, path in enumerate(sorted(waiting)):
        order.insert(place * (apart + 1), path)
    items[:] = [item for path in order for item in modules[path]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep modules and tests, which stay to the end, out of the garbage collector's rounds: each whole one took a third of a second."""
    gc.collect()
    gc.freeze()
    session.config.add_cleanup(gc.unfreeze)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Take the time limit from soaks and large simulations, which may take longer."""
    if item.get_closest_marker("slow"):
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def main_stays() -> Iterator[None]:
    """Streamlit's AppTest makes the page it runs the process's main module, which a process spawned later would run again."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture
def app_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataFolder]:
    """An empty data folder that the app's pages use in this test."""
    from sawtooth.app import library
    from sawtooth.app.server import process as server
    from sawtooth.app.settings import settings

    cached = (settings, server.jobs, library.library_of)
    monkeypatch.setenv("SAWTOOTH_DATA", str(tmp_path / "data"))
    for name in ("SAWTOOTH_TOKEN", "SAWTOOTH_NO_TOKEN", "SAWTOOTH_NO_EXTERNAL", "SAWTOOTH_DEMO"):
        monkeypatch.delenv(name, raising=False)
    for cache in cached:
        cache.cache_clear()
    yield DataFolder(tmp_path / "data").create()
    server.jobs().close()
    server.end_push_threads()
    for cache in cached:
        cache.cache_clear()


@pytest.fixture
def push_threads_end() -> Iterator[None]:
    """End the threads of pushes that a test made without a server, whose end would do it."""
    from sawtooth.app.server import process

    yield
    process.end_push_threads()
