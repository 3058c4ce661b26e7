"""Tests of the page frame in a real browser: drop, progress, cards and addresses.

There is no foreign request, and hostile names are shown as text.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sawtooth.app.places import SCREENS, address
from sawtooth.ingest.manifest import RecordingRef, new_manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop, three_steps
from tests.support.chromium import PageLog, click_to, log_in
from tests.support.paths import ROOT
from tests.support.servers import Server, start_server, without_bundled

pytestmark = pytest.mark.browser

HOSTILE = [  # Of at most 60 characters, which the cards of Runs show completely.
    "<script>window.pwned=1</script>",
    "<img src=http://evil.example/a.png onerror=window.pwned=1>",
    "![x](http://evil.example/b.png)",
    "[click](http://evil.example/c)",
    "http://evil.example/d www.evil.example e@evil.example",
    ":material/delete: :red[red] $\\frac{1}{2}$ **bold** `code`",
    "a<b>c</b>d &lt;b&gt; %{x}",
    "</script><script>window.pwned=2</script>",
    "[click](javascript:window.pwned=3) javascript:window.pwned=3",
    '" onmouseover="window.pwned=4" x="',
    "<svg/onload=window.pwned=5><iframe src=//evil.example/e>",
    "%{customdata[0]} {{7*7}} ${7*7} {0} %s",
    "<a href=http://evil.example/f>click</a>",
    "<style>*{background:url(http://evil.example/g)}</style>",
    "data:text/html,<script>window.pwned=6</script>",
]


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content))
    return path


def drop(page: Page, *paths: Path) -> None:
    page.locator("input[type=file]").first.set_input_files([str(path) for path in paths])


def test_a_dropped_trace_becomes_a_run_without_external_requests(
    server: Server, page: Page, seen: PageLog, tmp_path: Path
) -> None:
    page.goto(server.url)
    expect(page.get_by_text("Why does the GPU wait?")).to_be_visible()
    drop(page, written(tmp_path, "my first run.pt.trace.json.gz", three_steps().json()))
    expect(page.get_by_text("is ready.")).to_be_visible(timeout=60_000)
    expect(page.get_by_test_id("stMain").get_by_text("my first run").last).to_be_visible()
    expect(page.get_by_text("1 run on this machine")).to_be_visible()
    for _ in range(240):  # Data of other screens is computed after the answer.
        if not (left := list((server.data / "uploads").iterdir())):
            break
        page.wait_for_timeout(250)
    assert left == []
    run = page.get_by_role("link", name="See the verdict").first.get_attribute("href").split("run=")[1]
    chosen = page.get_by_test_id("stSidebar").get_by_role("combobox", name="Run")
    expect(chosen).to_have_value("my first run")
    drop(page, written(tmp_path, "my second run.pt.trace.json.gz", matmul_loop().json()))
    expect(chosen).to_have_value("my second run", timeout=60_000)  # The list also works if the address names the first run.
    page.goto(f"{server.url}/kernels?run={run}")  # The address of an older version.
    page.wait_for_url(f"{server.url}/work?run={run}")
    page.get_by_test_id("stDataFrame").first.hover(timeout=60_000)
    expect(page.get_by_role("button", name="Search").first).to_be_visible()  # The toolbar of a table is visible.
    expect(page.get_by_role("button", name="Download as CSV")).to_have_count(0)  # Only our own CSV exports recorded names.
    expect(page.get_by_role("button", name="CSV").first).to_be_visible()
    assert seen.foreign(server.url) == []
    assert seen.errors == []


@pytest.mark.slow
def test_a_file_that_is_not_a_trace_is_refused_with_a_sentence(server: Server, page: Page, tmp_path: Path) -> None:
    page.goto(server.url)
    path = tmp_path / "holiday.jpg"
    path.write_bytes(b"\xff\xd8\xff\xe0 not a trace")
    drop(page, path)
    expect(page.get_by_text("holiday.jpg could not be read")).to_be_visible(timeout=60_000)
    expect(page.get_by_text("Traceback")).to_have_count(0)
    refused, dismiss = page.get_by_text("holiday.jpg could not be read"), page.get_by_role("button", name="Dismiss")
    dismiss.first.click()
    try:
        expect(refused).to_have_count(0, timeout=10_000)
    except AssertionError:  # The list was redrawn under the mouse.
        dismiss.first.click()
    expect(refused).to_have_count(0)


@pytest.mark.slow
def test_hostile_names_show_as_text_and_load_nothing(server: Server, page: Page, seen: PageLog) -> None:
    data = DataFolder(server.data)
    for number, name in enumerate(HOSTILE):
        ref = RecordingRef(id=f"{number:016x}", kind="trace", source_name=name)
        manifest = new_manifest([ref], name)
        manifest.tags.append(name)
        data.write_manifest(manifest)
    page.goto(f"{server.url}/runs?show=Cards")
    expect(page.get_by_text("runs on this machine")).to_be_visible()
    expect(page.get_by_role("checkbox")).to_have_count(len(data.manifests()), timeout=60_000)
    text = page.get_by_test_id("stMain").inner_text().replace("\u2060", "")
    for name in HOSTILE:
        assert name in text
    assert page.evaluate("window.pwned") is None
    assert seen.foreign(server.url) == []
    assert [link for link in page.locator("a").evaluate_all("links => links.map(a => a.href)") if "evil" in link] == []


def hostile_trace() -> dict[str, object]:
    """Six steps whose kernels, operators and annotations carry the hostile names."""
    events: list[dict[str, object]] = []
    correlation, length = 0, 250 * (len(HOSTILE) + 1)
    for step in range(1, 7):
        at = 1_000_000 + step * length
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": at, "dur": length}
        )
        for number, name in enumerate(HOSTILE):
            correlation += 1
            begin = at + 10 + number * 250
            args = {"correlation": correlation, "device": 0, "stream": 7}
            events += [
                {"ph": "X", "cat": "user_annotation", "name": f"note {name}", "pid": 1, "tid": 1, "ts": begin, "dur": 80},
                {
                    "ph": "X",
                    "cat": "cpu_op",
                    "name": name,
                    "pid": 1,
                    "tid": 1,
                    "ts": begin + 5,
                    "dur": 70,
                    "args": {"Input Dims": [[2, 2]], "Input type": [name]},
                },
                {
                    "ph": "X",
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "pid": 1,
                    "tid": 1,
                    "ts": begin + 10,
                    "dur": 5,
                    "args": {"correlation": correlation},
                },
                {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": begin + 30, "dur": 40, "args": args},
            ]
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": HOSTILE[1]}], "traceEvents": events}


@pytest.mark.slow
def test_hostile_names_in_a_trace_are_harmless_on_every_screen(
    server: Server, page: Page, seen: PageLog, tmp_path: Path
) -> None:
    page.goto(server.url)
    drop(page, written(tmp_path, "<b>hostile.json.gz", json.dumps(hostile_trace()).encode()))
    expect(page.get_by_text("is ready.")).to_be_visible(timeout=120_000)
    run = page.get_by_role("link", name="See the verdict").first.get_attribute("href").split("run=")[1]
    pages = [address(screen.name, {"run": run}) for screen in SCREENS if screen.name != "runs"]
    for where in (*pages, f"/compare?a={run}&b={run}", f"/compare?a={HOSTILE[0]}&b=../../x"):
        page.goto(f"{server.url}{where}")
        expect(page.get_by_role("heading", level=1).first).to_be_visible(timeout=60_000)
        expect(page.get_by_test_id("stStatusWidget")).to_have_count(0, timeout=60_000)
        expect(page.get_by_text("This page failed")).to_have_count(0)
        assert page.evaluate("window.pwned") is None, where
        links = page.locator("a").evaluate_all("links => links.map(a => a.getAttribute('href') || a.href.baseVal || '')")
        # Our own links name the row.
        assert [link for link in links if "evil" in link and not link.startswith("/")] == [], where
        assert page.locator("img[src*=evil], .stMain b:text-is('c')").count() == 0, where
    assert seen.foreign(server.url) == []


def test_the_address_names_the_run_and_survives_reload_and_back(server: Server, page: Page, tmp_path: Path) -> None:
    data = DataFolder(server.data)
    one = new_manifest([RecordingRef(id="a" * 16, kind="trace", source_name="one")], "run one")
    two = new_manifest([RecordingRef(id="b" * 16, kind="trace", source_name="two")], "run two")
    data.write_manifest(one)
    data.write_manifest(two)
    page.goto(f"{server.url}/telemetry?run={one.id}")
    chosen = page.get_by_role("combobox", name="Run")
    expect(chosen).to_have_value("run one")
    page.wait_for_url(f"**/timeline?view=telemetry&run={one.id}")
    click_to(page, "audit")
    page.wait_for_url(f"**/verdict?view=audit&run={one.id}")
    expect(chosen).to_have_value("run one")
    chosen.click()
    page.get_by_role("option", name="run two").click()
    page.wait_for_url(f"**/verdict?view=audit&run={two.id}")
    page.reload()
    expect(chosen).to_have_value("run two")
    page.go_back()
    expect(chosen).to_have_value("run one")


def test_the_page_works_on_phones_in_dark_mode_and_by_keyboard(server: Server, browser, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": 800, "height": 1000}, color_scheme="dark")
    log_in(context)
    page = context.new_page()
    page.goto(server.url)
    zone = page.locator("input[type=file]").first
    expect(zone).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    zone.focus()
    assert zone.evaluate("element => element.getRootNode().activeElement === element")
    assert page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor") == "rgb(20, 23, 26)"
    context.close()


@pytest.mark.slow
def test_a_server_with_a_token_shows_the_login_page_and_accepts_the_link(tmp_path: Path, page: Page) -> None:
    token = "a-token-for-this-test"
    server = start_server(tmp_path / "data", SAWTOOTH_TOKEN=token)
    try:
        page.goto(f"{server.url}/reference")
        expect(page.get_by_text("Log in with the link")).to_be_visible()
        page.get_by_label("Token").fill("not the token")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_text("This is not the server's token.")).to_be_visible()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_text("These definitions come from the code")).to_be_visible(timeout=90_000)  # A server's first page.
        assert page.url == f"{server.url}/reference"
        page.context.clear_cookies()
        page.goto(f"{server.url}/reference?token={token}")  # Older versions printed this address.
        expect(page.get_by_text("These definitions come from the code")).to_be_visible(timeout=90_000)
        assert "token" not in page.url
    finally:
        server.stop()


@pytest.mark.slow
def test_an_installed_sawtooth_started_inside_a_checkout_runs_its_own_code(tmp_path: Path, page: Page) -> None:
    installed = tmp_path / "installed"
    for package in ("app", "analysis", "ingest"):
        shutil.copytree(ROOT / package, installed / package, ignore=shutil.ignore_patterns("__pycache__"))
    command = ("-P", "-m", "sawtooth.app.cli", "serve")
    server = start_server(without_bundled(tmp_path / "data"), command=command, cwd=ROOT, PYTHONPATH=str(installed))
    try:
        page.goto(server.url)
        expect(page.get_by_text("Three ways to add a run")).to_be_visible(timeout=120_000)
        expect(page.get_by_text("This page failed")).to_have_count(0)
    finally:
        server.stop()
