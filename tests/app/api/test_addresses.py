"""Tests of addresses of older versions: they open the same screen with the same parameters.

Such addresses are in links, reports and chats.
"""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sawtooth.app.api.addresses import routes
from sawtooth.app.places import SCREENS, view_at
from sawtooth.app.server.headers import security_headers

RUN = "run=b1fd5309824382b0"
# One address for every screen and option of version 0.9, and the file of app/screens that it opens.
OLD = [
    ("/", "runs"),
    ("/?find=resnet&tag=model%3Dresnet&sort=step&group=gpu", "runs"),
    (f"/verdict?{RUN}&fixes=1%2C3&open=2&steps=250&price=3.5", "verdict"),
    (f"/audit?{RUN}&chain=c9a7a8b5098381fc&chain=75184225fa06de76", "audit"),
    (f"/timeline?{RUN}&t0=1.5&t1=2&slice=0%3A12&lanes=gpu&find=gemm&finding=2", "timeline"),
    (f"/timeline?{RUN}&device=1&ranks=true&in_view=Host+in+view", "timeline"),
    (f"/timeline?{RUN}&beside=c9a7a8b5098381fc&beside_step=2", "timeline"),
    (f"/idle?{RUN}&device=1&basis=recorded&cause=data_wait", "idle"),
    (f"/kernels?{RUN}&device=1&columns=true", "work"),
    (f"/efficiency?{RUN}&device=1", "efficiency"),
    (f"/ranks?{RUN}&heat=Own+time&rows=Host", "ranks"),
    (f"/memory?{RUN}", "memory"),
    (f"/communication?{RUN}", "communication"),
    (f"/telemetry?{RUN}&sampled=0123456789abcdef-1", "telemetry"),
    ("/compare?a=b1fd5309824382b0&b=c9a7a8b5098381fc&ledger=recorded&changed=Operators&named=addmm", "compare"),
    ("/live?session=20261125-120000&window=10+s&gpu=1", "live"),
    (f"/sql?{RUN}&recording=0123456789abcdef&sql=SELECT+1", "sql"),
    ("/reference?q=MFU", "reference"),
    ("/logins", "logins"),
]


@pytest.fixture
def client() -> TestClient:
    return TestClient(Starlette(routes=routes()), base_url="http://localhost:8501")


@pytest.mark.parametrize(("old", "screen"), OLD)
def test_an_old_address_opens_its_screen_with_all_parameters(client: TestClient, old: str, screen: str) -> None:
    answer = client.get(old)
    assert answer.status_code == 200 and '<div id="root">' in answer.text
    asked, new = parse_qs(urlsplit(old).query), parse_qs(answer.url.query.decode())
    assert view_at(answer.url.path[1:], (new.get("view") or [None])[-1]).name == screen
    assert {key: new.get(key) for key in asked} == asked


# Old addresses of tables that are now groupings of Work. Version 0.9 had a screen for each; later versions had views of Work.
GROUPED = [
    (
        f"/kernels?{RUN}&device=1&kernels_by=Category&kernel=a%26b&columns=true",
        f"{RUN}&device=1&by=Category&name=a%26b&columns=true",
    ),
    (f"/kernels?{RUN}&kernels_by=Operator+and+shape", f"{RUN}&by=Operator&by_shape=true"),
    (f"/operators?{RUN}&operators_by=Operator&order=host+time&operator=mm", f"by=Operator&{RUN}&order=host+time&name=mm"),
    (f"/operators?{RUN}&operators_by=Operator+and+shape", f"by=Operator&{RUN}&by_shape=true"),
    (f"/modules?{RUN}&modules_by=Class&module=layer1", f"by=Module&{RUN}&by_class=true&name=layer1"),
    (f"/work?view=operators&{RUN}&operator=mm", f"by=Operator&{RUN}&name=mm"),
    (f"/work?view=modules&{RUN}&modules_by=Tree", f"by=Module&{RUN}"),
    (f"/work?{RUN}&kernels_by=Kernel&kernel=gemm", f"{RUN}&name=gemm"),
]


@pytest.mark.parametrize(("old", "now"), GROUPED)
def test_an_old_address_of_a_table_opens_work_with_its_grouping(client: TestClient, old: str, now: str) -> None:
    answer = client.get(old)
    assert answer.status_code == 200 and (answer.url.path, parse_qs(answer.url.query.decode())) == ("/work", parse_qs(now))


@pytest.mark.parametrize("old", [f"/?view=Cards&{RUN}", f"/runs?view=Cards&{RUN}"])
def test_the_layout_of_the_list_of_runs_has_its_own_parameter(client: TestClient, old: str) -> None:
    """The Live screen uses the parameter ``view``.

    A control with this name would remove it from Live's address.
    """
    answer = client.get(old)
    assert (answer.url.path, parse_qs(answer.url.query.decode())) == ("/runs", {"show": ["Cards"], "run": [RUN[4:]]})


@pytest.mark.parametrize(
    "now",
    [
        "/runs?view=live&session=20261125-120000",
        f"/work?{RUN}&by=Operator&name=mm",
        f"/work?view=memory&{RUN}",
        f"/work?view=efficiency&{RUN}&kernel=a",
    ],
)
def test_a_current_address_does_not_change(client: TestClient, now: str) -> None:
    assert str(client.get(now, follow_redirects=False).status_code) == "200"


def test_every_screen_has_an_old_address() -> None:
    assert {screen for _, screen in OLD} == {screen.name for screen in SCREENS}


def test_the_index_page_places_sidebar_and_page_before_any_script(client: TestClient) -> None:
    # Without this, the page moves when the sidebar appears: a layout shift of 0.24 on each load.
    body = client.get("/verdict").text.split('<div id="root">')[1]
    assert "<style>" in body and ':not(:has([data-testid="stSidebar"]))' in body


def test_code_of_components_is_loaded_with_the_page(client: TestClient) -> None:
    # Without this, an element is drawn after its neighbours, which then move.
    head = client.get("/verdict").text.split("</head>")[0]
    early = re.findall(r'rel="modulepreload"[^>]* href="\./static/js/([\w-]+)\.', head)
    assert {"Html", "BidiComponent", "PageLink", "DataFrame", "PlotlyChart", "purify"} <= set(early)
    assert len(early) == len(set(re.findall(r'href="\./static/js/([^"]+)"', head))), "each once"


def test_a_view_of_runs_in_a_link_to_another_screen_is_left_out(client: TestClient) -> None:
    assert client.get(f"/idle?{RUN}&view=table").url.query.decode() == f"view=idle&{RUN}"


def test_a_page_requests_nothing_below_its_own_address(client: TestClient) -> None:
    """Without the server's address, Streamlit's page sends two such requests, and both fail."""
    page = client.get("/work").text
    assert page.index("BACKEND_BASE_URL: location.origin") < page.index("static/js/index.")
    assert (
        security_headers()["content-security-policy"].count("'sha256-") == 2
    )  # The script with the address and Streamlit's own may run.
