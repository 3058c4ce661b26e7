"""Tests of the server behind nginx with https, with the configuration in docs/.

They are slow and need nginx and openssl: ``python -m pytest -m slow tests/app/server/test_proxy.py``
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import websockets

from tests.support.paths import ROOT
from tests.support.servers import COOKIE, LOGGED_IN, TOKEN, free_port, start_server, without_bundled

pytestmark = pytest.mark.slow
NAME = "sawtooth.example.com"
SELF_SIGNED = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN={NAME} -addext subjectAltName=DNS:{NAME}".split()
SITE = """\
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/sawtooth.conf;
}}
"""


class Proxied:
    """A browser's view of a server that it reaches by name, over https, on ``port``."""

    def __init__(self, port: int, certificate: Path) -> None:
        self.port = port
        self.trust = ssl.create_default_context(cafile=str(certificate))
        self.origin = f"https://{NAME}:{port}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> httpx2.Response:
        sent = {"Host": f"{NAME}:{self.port}", **{name.replace("_", "-"): value for name, value in headers.items()}}
        with httpx2.Client(verify=self.trust, timeout=30) as client:
            url = f"https://127.0.0.1:{self.port}{path}"
            return client.request(method, url, content=body, headers=sent, extensions={"sni_hostname": NAME})

    async def socket(self, **headers: str) -> None:
        """Open the page's WebSocket and close it. Raises websockets.InvalidStatus where it is refused."""
        async with websockets.connect(
            f"wss://{NAME}:{self.port}/_stcore/stream",
            host="127.0.0.1",
            port=self.port,
            ssl=self.trust,
            subprotocols=["streamlit"],
            additional_headers=headers,
        ) as socket:
            await socket.ping()


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    for program in ("nginx", "openssl"):
        assert shutil.which(program), f"this test needs {program}"
    folder = tmp_path_factory.mktemp("proxy")
    server = start_server(without_bundled(folder / "data"), SAWTOOTH_ALLOWED_HOSTS=NAME)
    port, certificate, key = free_port(), folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [*SELF_SIGNED, "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    site = (ROOT / "docs" / "nginx.conf").read_text()
    for documented, ours in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/certs/sawtooth.pem": str(certificate),
        "/etc/ssl/private/sawtooth.key": str(key),
        "127.0.0.1:8501": server.url.removeprefix("http://").replace("localhost", "127.0.0.1"),
    }.items():
        assert documented in site, documented
        site = site.replace(documented, ours)
    (folder / "sawtooth.conf").write_text(site)
    (folder / "nginx.conf").write_text(SITE.format(folder=folder))
    folder.chmod(0o755)
    nginx = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)], stderr=subprocess.DEVNULL)
    try:
        reached = Proxied(port, certificate)
        until = time.monotonic() + 20
        while True:
            try:
                assert reached.ask("GET", "/_stcore/health").status_code == 200
                break
            except httpx2.TransportError:
                assert time.monotonic() < until and nginx.poll() is None, (folder / "error.log").read_text()
                time.sleep(0.1)
        yield reached
    finally:
        nginx.terminate()
        nginx.wait(20)
        server.stop()


def test_access_needs_a_login(proxied: Proxied) -> None:
    assert proxied.ask("GET", "/").status_code == 401
    form = f"token={TOKEN}&next=%2Fruns".encode()
    kind = "application/x-www-form-urlencoded"
    answer = proxied.ask("POST", "/login", form, Content_Type=kind, Origin=proxied.origin)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/runs"
    cookie = answer.headers["set-cookie"]
    assert "Secure" in cookie
    assert proxied.ask("GET", "/runs", Cookie=cookie.split(";")[0]).status_code == 200


def test_only_own_pages_can_open_the_websocket(proxied: Proxied) -> None:
    cookie = "=".join(COOKIE)
    asyncio.run(proxied.socket(Cookie=cookie, Origin=proxied.origin))
    for refused in ({"Cookie": cookie, "Origin": "https://elsewhere.example"}, {"Origin": proxied.origin}):
        with pytest.raises(websockets.InvalidStatus):
            asyncio.run(proxied.socket(**refused))


def test_another_host_name_is_refused(proxied: Proxied) -> None:
    assert proxied.ask("GET", "/", Host="elsewhere.example").status_code == 400


def test_an_upload_larger_than_nginx_takes_by_itself_arrives_whole(proxied: Proxied) -> None:
    body = os.urandom(5 << 20)
    answer = proxied.ask("PUT", "/api/v1/uploads?name=big.bin", body, X_Sawtooth="1", Origin=proxied.origin, **LOGGED_IN)
    assert (answer.status_code, answer.json()["bytes"]) == (201, len(body))
