"""How the server is started, before it runs."""

import socket

import pytest

from sawtooth.app.server import process as server
from sawtooth.ingest.errors import UsageError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch) -> None:
    for name in ("SAWTOOTH_TOKEN", "SAWTOOTH_DATA", "SAWTOOTH_NO_EXTERNAL", "SAWTOOTH_DEMO", "SAWTOOTH_URL"):
        monkeypatch.delenv(name, raising=False)


def test_loopback_needs_no_token_and_any_other_address_gets_one() -> None:
    assert "SAWTOOTH_TOKEN" not in server.environment_for(address="127.0.0.1")
    made = server.environment_for(address="0.0.0.0")["SAWTOOTH_TOKEN"]
    assert len(made) >= 32
    assert made != server.environment_for(address="0.0.0.0")["SAWTOOTH_TOKEN"]
    assert server.environment_for(address="0.0.0.0", token="my-own-long-token")["SAWTOOTH_TOKEN"] == "my-own-long-token"
    assert server.environment_for(token="my-own-long-token")["SAWTOOTH_TOKEN"] == "my-own-long-token"


def test_a_short_token_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 12"):
        server.environment_for(address="0.0.0.0", token="secret")


def test_a_port_in_use_is_named_with_the_way_out() -> None:
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
    server.serve(port=port, data=tmp_path, external=False, demo=True, open_browser=True)
    assert seen["argv"][1:5] == ["-P", "-m", "streamlit", "run"]
    assert seen["argv"][5].endswith("/app/main.py")
    assert seen["env"]["SAWTOOTH_DATA"] == str(tmp_path)
    assert seen["env"]["SAWTOOTH_NO_EXTERNAL"] == "1"
    assert seen["env"]["SAWTOOTH_URL"] == ""
    assert seen["env"]["SAWTOOTH_OPEN"] == f"http://127.0.0.1:{port}/"


def test_the_link_names_the_token_once() -> None:
    assert server.url_of("127.0.0.1", 8501, None) == "http://127.0.0.1:8501/"
    assert server.url_of("::1", 8501, "t0ken-of-this-test") == "http://[::1]:8501/?token=t0ken-of-this-test"
