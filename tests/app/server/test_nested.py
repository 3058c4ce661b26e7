"""Tests of addresses below a screen's address: they lead to the screen only."""

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sawtooth.app.server.access import AccessMiddleware
from sawtooth.app.settings import Settings
from sawtooth.ingest.schema import DataFolder

BROWSER = {"accept": "text/html,application/xhtml+xml"}


async def _page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the page")


@pytest.fixture
def client(tmp_path) -> TestClient:
    access = Middleware(AccessMiddleware, settings=Settings(DataFolder(tmp_path)))
    app = Starlette(routes=[Route("/{rest:path}", _page, methods=["GET", "POST"])], middleware=[access])
    return TestClient(app, base_url="http://localhost:8501", follow_redirects=False)


@pytest.mark.parametrize(
    ("asked", "led_to"),
    [
        ("/verdict/extra/deep?run=ab&sql=a%26b", "/verdict?run=ab&sql=a%26b"),
        ("/verdict/extra", "/verdict"),
        ("//evil.test/x", "/evil.test"),
        ("/%5Cevil.test/x", "/%5Cevil.test"),
    ],
)
def test_an_address_below_a_screen_opens_the_screen(client, asked, led_to) -> None:
    answer = client.get(f"http://localhost:8501{asked}", headers=BROWSER)
    assert (answer.status_code, answer.headers["location"]) == (307, led_to)


@pytest.mark.parametrize("path", ["/", "/verdict?run=ab", "/verdict/", "/api/v1/runs", "/media/x.png", "/static/js/index.js"])
def test_other_addresses_are_served(client, path) -> None:
    assert client.get(path, headers=BROWSER).text == "the page"


def test_requests_of_a_page_are_not_redirected(client) -> None:
    """Streamlit's page looks for _stcore/health below its address.

    It uses an address that answers as the base of all further requests.
    """
    assert client.get("/verdict/_stcore/health", headers={"accept": "*/*"}).text == "the page"
    assert client.post("/verdict/extra", headers=BROWSER).text == "the page"
