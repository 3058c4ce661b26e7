"""Tests of servers that are killed, started twice or on a read-only disk."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sawtooth.ingest.schema import DataFolder
from tests.support import fault_stage as stage
from tests.support.servers import LOGGED_IN, Server, ask, reports, start_job, start_server, until, without_bundled

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """Return a data folder with one run, from which the bundled recordings were removed."""
    folder = DataFolder(without_bundled(tmp_path / "data")).create()
    stage.ingest(folder, stage.trace_in(tmp_path / "old.json.gz", 40))
    return folder


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    running: list[Server] = []
    yield running
    for server in running:
        server.stop()


@pytest.mark.parametrize("delay", [0.0, 0.7, 1.5, 3.0])
def test_a_restarted_server_has_its_runs(tmp_path, folder, servers, delay):
    """After kill -9 during a job, the next server shows the old runs and can ingest the file.

    The job's child process ends too, and no temporary files remain.
    """
    trace = stage.trace_in(tmp_path / "new.json.gz", 3000)
    servers.append(start_server(folder.root))
    before = reports(servers[0])
    start_job(servers[0], trace)
    children = until(lambda: psutil.Process(servers[0].process.pid).children())
    time.sleep(delay)  # The kill must hit different moments of the job.
    servers[0].process.kill()
    psutil.wait_procs(children, timeout=30)
    assert not any(child.is_running() for child in children)
    time.sleep(6)  # A younger draft is not removed, because its writer may not hold its lock yet.
    servers.append(start_server(folder.root))
    stage.check_complete(folder)
    assert {run: reports(servers[1])[run] for run in before} == before
    job = start_job(servers[1], trace)
    done = until(lambda: (found := ask(servers[1], "GET", f"/api/v1/jobs/{job}")[1])["stage"] in ("done", "failed") and found)
    assert done["error"] is None and len(reports(servers[1])) == 2
    assert {run: reports(servers[1])[run] for run in before} == before


def test_two_servers_work_independently(tmp_path, folder, servers):
    trace = stage.trace_in(tmp_path / "new.json.gz", 3000)
    servers.append(start_server(folder.root))
    before = reports(servers[0])
    connection = http.client.HTTPConnection("localhost", int(servers[0].url.rsplit(":", 1)[1]), timeout=120)
    content = trace.read_bytes()
    connection.putrequest("PUT", "/api/v1/uploads?name=new.json.gz")
    connection.putheader("Content-Length", str(len(content)))
    connection.putheader("X-Sawtooth", "1")
    connection.putheader("Authorization", LOGGED_IN["Authorization"])
    connection.endheaders()
    connection.send(content[:1000])
    job = start_job(servers[0], trace)
    servers.append(start_server(folder.root))  # It sweeps the folder while the first server uploads and reads.
    connection.send(content[1000:])
    assert connection.getresponse().status == 201
    connection.close()
    done = until(lambda: (found := ask(servers[0], "GET", f"/api/v1/jobs/{job}")[1])["stage"] in ("done", "failed") and found)
    assert done["error"] is None
    assert reports(servers[0]) == reports(servers[1])
    servers[0].process.kill()
    assert {run: reports(servers[1])[run] for run in before} == before and len(reports(servers[1])) == 2


@pytest.mark.parametrize("how", ["read-only", "full"] if os.getuid() == 0 else [])
def test_a_disk_that_cannot_be_written_still_shows_its_runs(tmp_path, folder, servers, how):
    disk = tmp_path / "disk" / "data"  # The server's log is next to it.
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], check=True)
    try:
        subprocess.run(["cp", "-r", f"{folder.root}/.", str(disk)], check=True)
        if how == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        else:
            with pytest.raises(OSError), (disk / "ballast").open("wb") as ballast:
                while True:
                    ballast.write(bytes(1 << 16))
        servers.append(start_server(folder.root))
        wanted = reports(servers[0])
        servers.append(start_server(disk))
        assert reports(servers[1]) == wanted and len(wanted) == 1
        status, answer = ask(servers[1], "PUT", "/api/v1/uploads?name=x.json", b"x" * 100_000)
        assert status == 507 and "disk" in answer["error"]["sentence"] and str(disk) not in json.dumps(answer)
        if how == "read-only":
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        else:
            (disk / "ballast").unlink()
        stage.ingest(DataFolder(disk), stage.trace_in(tmp_path / "new.json.gz", 400))
        assert len(reports(servers[1])) == 2  # The same server, without a restart.
    finally:
        for server in servers:
            server.stop()
        subprocess.run(["umount", "-l", str(disk)], check=True)
