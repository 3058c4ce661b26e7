"""Tests of starting the server, before it runs."""

import signal
import socket
import sys

import pytest

from sawtooth.app.server import process
from sawtooth.app.server import start as server
from sawtooth.app.server.sessions import Sessions
from sawtooth.app.settings import settings
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import DataFolder
from tests.support.servers import start_server, without_bundled


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch) -> None:
    for name in (
        "SAWTOOTH_TOKEN",
        "SAWTOOTH_DATA",
        "SAWTOOTH_NO_EXTERNAL",
        "SAWTOOTH_DEMO",
        "SAWTOOTH_NO_TOKEN",
        "SAWTOOTH_OPEN",
    ):
        monkeypatch.delenv(name, raising=False)


def test_a_server_requires_a_token_unless_disabled(app_data, monkeypatch) -> None:
    made = process.started_settings().token
    assert made is not None and len(made) >= 32
    monkeypatch.delenv("SAWTOOTH_TOKEN")
    settings.cache_clear()
    assert process.started_settings().token == made  # The server keeps the token, so that logins stay valid.
    assert (app_data.root / "token").stat().st_mode & 0o077 == 0
    monkeypatch.delenv("SAWTOOTH_TOKEN")
    monkeypatch.setenv("SAWTOOTH_NO_TOKEN", "1")
    settings.cache_clear()
    assert process.started_settings().token is None


def test_only_a_local_server_can_run_without_a_token() -> None:
    assert server.environment_for(no_token=True)["SAWTOOTH_NO_TOKEN"] == "1"
    for options in ({"address": "0.0.0.0"}, {"token": "my-own-long-token"}):
        with pytest.raises(UsageError, match="only you can reach"):
            server.environment_for(no_token=True, **options)


def test_a_configured_token_is_used() -> None:
    assert server.environment_for(address="0.0.0.0", token="my-own-long-token")["SAWTOOTH_TOKEN"] == "my-own-long-token"
    assert server.environment_for(token="my-own-long-token")["SAWTOOTH_TOKEN"] == "my-own-long-token"


def test_a_short_token_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 12"):
        server.environment_for(address="0.0.0.0", token="secret")


def test_a_second_demo_takes_the_next_free_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        after = server.first_free_port(port)
    assert port < after < port + server.MAX_PORTS


def test_a_port_in_use_is_named_with_advice() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {port + 1}"):
            server._check_port("127.0.0.1", port)


def test_serve_execs_streamlit_with_the_absolute_script(monkeypatch, tmp_path) -> None:
    seen = {}
    monkeypatch.setattr(server.os, "execve", lambda path, argv, env: seen.update(argv=argv, env=env))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = server.environment_for(data=tmp_path, external=False, demo=True, open_browser=True)
    server.serve(port=port, tls=(tmp_path / "cert", tmp_path / "key"), environment=environment)
    assert seen["argv"][1] == "-P" and seen["argv"][2].endswith("/app/server/streamlit_server.py")
    assert seen["argv"][3].endswith("/app/main.py")
    assert seen["env"]["SAWTOOTH_DATA"] == str(tmp_path)
    assert seen["env"]["SAWTOOTH_NO_EXTERNAL"] == "1"
    assert seen["env"]["SAWTOOTH_OPEN"] == "1"
    assert seen["argv"][-4:] == ["--server.sslCertFile", str(tmp_path / "cert"), "--server.sslKeyFile", str(tmp_path / "key")]


def test_a_link_opens_once_and_contains_no_token(tmp_path) -> None:
    data = DataFolder(tmp_path)
    assert server.url_of("::1", 8501, secure=True) == "https://[::1]:8501/"
    link = server.link_to(data, server.url_of("127.0.0.1", 8501, "verdict?run=x"))
    address, code = link.split("&launch=")
    assert address == "http://127.0.0.1:8501/verdict?run=x"
    sessions = Sessions(data.access)
    assert sessions.redeem(code, None)
    assert not sessions.redeem(code, None)


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C there is no signal of one process")
def test_ctrl_c_ends_the_server_with_one_sentence_and_a_start_says_nothing_of_caches(tmp_path) -> None:
    running = start_server(without_bundled(tmp_path / "data"), command=("-P", "-m", "sawtooth", "serve"))
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(60) == 130
    answer = running.log.read_text()
    assert answer.rstrip().splitlines()[-1] == "Stopped."
    assert "Aborted" not in answer and "Traceback" not in answer and "No runtime found" not in answer
    assert "nanobind" not in answer


def test_a_started_server_limits_slow_clients(tmp_path) -> None:
    """Modules are excluded from garbage collection only after uvicorn's server is found among all objects."""
    started = start_server(without_bundled(tmp_path / "data"))
    started.stop()
    assert "server was not found" not in started.log.read_text(encoding="utf-8", errors="replace")
