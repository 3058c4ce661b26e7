"""Fixtures and hooks that several test files use."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sawtooth.ingest.schema import DataFolder
from tests.support import common_folder
from tests.support.threads import threads_end as threads_end  # This import applies the fixture to every module.

# This must run before anything loads PyTorch. Otherwise each pytest worker, and each training that it starts, has one thread
# per core. These threads spin while they wait for each other. Small steps then took at least twice as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests need not survive a power failure, so they do not wait for the disk. This saves 1 % of the time of tests that analyse a trace.
os.fsync = lambda file: None  # type: ignore[assignment]


def pytest_configure(config: pytest.Config) -> None:
    # Workers use the folder of their controller.
    if not hasattr(config, "workerinput") and common_folder.FOLDER_VARIABLE not in os.environ:
        config.add_cleanup(common_folder.make())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of sweeps that the default run leaves out, and set the order of the modules."""
    leave_out_of_sweeps(items)
    order_modules(items)
    for item in items:
        if item.get_closest_marker("browser"):
            # A busy machine may redraw a page under the mouse. The summary counts reruns.
            item.add_marker(pytest.mark.flaky(reruns=1))


def leave_out_of_sweeps(items: list[pytest.Item]) -> None:
    """Mark the cases of each sweep as slow. Its marker has the number of evenly distributed cases to keep."""
    sweeps: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sweep"):
            sweeps.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for cases in sweeps.values():
        (keep,) = cases[0].get_closest_marker("sweep").args  # type: ignore[union-attr]
        remaining = {round(number * (len(cases) - 1) / max(keep - 1, 1)) for number in range(min(keep, len(cases)))}
        for number, case in enumerate(cases):
            if number not in remaining:
                case.add_marker("slow")


def order_modules(items: list[pytest.Item]) -> None:
    """Put the modules at the top of tests/ first; distribute browser modules evenly among the others.

    The modules at the top start processes and take long. If one of them runs last, the other workers have nothing to do.
    Browser tests wait more than they compute. If they run last or next to each other, the machine is idle.
    """
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    waiting = {path for path, tests in modules.items() if any(test.get_closest_marker("browser") for test in tests)}
    order = [path for path in modules if path not in waiting]
    order.sort(key=lambda path: path.parent != Path(__file__).parent)
    gap = len(order) // (len(waiting) + 1) or 1
    for place, path in enumerate(sorted(waiting)):
        order.insert(place * (gap + 1), path)
    items[:] = [item for path in order for item in modules[path]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the collected tests from garbage collection, which would take a third of a second each time."""
    gc.collect()
    gc.freeze()
    session.config.add_cleanup(gc.unfreeze)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remove the time limit from soaks and large simulations, which may take longer."""
    if item.get_closest_marker("slow"):
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def main_stays() -> Iterator[None]:
    """Restore the process's main module after the test.

    Streamlit's AppTest replaces the main module by the page. A process that is spawned later would run this page.
    """
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture
def own_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use a separate temporary folder for this test and the processes that it starts.

    The machine's folder may contain files of earlier runs. The path is short, because the address of a socket in it is limited to
    107 bytes.
    """
    with tempfile.TemporaryDirectory(prefix="own-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.fixture
def app_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataFolder]:
    """Yield an empty data folder that the app's pages use in this test."""
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
    """End the threads of pushes that a test made without a server.

    A server would end these threads when it stops.
    """
    from sawtooth.app.server import process

    yield
    process.end_push_threads()
