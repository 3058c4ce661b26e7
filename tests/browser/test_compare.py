"""Tests of a comparison's link in another browser after a restart, and of its HTML report offline."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.chromium import PageLog, log_in
from tests.support.servers import start_server, without_bundled

pytestmark = pytest.mark.browser

SLOW = 90_000  # ms; the first page of a fresh server compiles and analyses, on machines with two busy cores
SENTENCE = "after is faster than before, size uncertain: 1.00\u00a0ms → 0.80\u00a0ms per step"


def pair(folder: Path, names: tuple[str, str] = ("before", "after")) -> tuple[str, str]:
    data = DataFolder(without_bundled(folder / "data")).create()
    ids = []
    for name, loop in zip(names, (matmul_loop(steps=6), matmul_loop(steps=6, step_us=800, matmul_us=350)), strict=True):
        path = loop.write(folder / f"{'after' if ids else 'before'}.json")
        ids.append(ingest_into_runs(data, [(path, path.name)], name=name).runs[0].id)
    return ids[0], ids[1]


def state(page: Page) -> tuple[str, list[str], str]:
    """Return the texts of the page: its headline, its findings, and the caption of the operators' table."""
    expect(page.locator("h1")).to_contain_text("faster than", timeout=SLOW)
    expect(page.locator("h2.st-title", has_text="operator time that changed most")).to_be_visible(timeout=SLOW)
    expect(page.locator(".js-plotly-plot")).to_have_count(2, timeout=SLOW)
    expect(page.get_by_text("Compare three or more runs")).to_be_visible(timeout=SLOW)  # The last element of the page.
    return (
        page.locator("h1").inner_text(),
        page.locator("h2.st-title").all_inner_texts(),
        page.locator("input[type=text]").last.input_value(),
    )


def test_a_link_shows_the_same_page_in_another_browser_after_a_restart(tmp_path: Path, browser: Browser) -> None:
    a, b = pair(tmp_path)
    server = start_server(tmp_path / "data")
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    log_in(context)
    page = context.new_page()
    seen = PageLog(page)
    try:
        page.goto(f"{server.url}/compare?a={a}&b={b}")
        expect(page.locator("h1")).to_have_text(SENTENCE, timeout=SLOW)
        page.get_by_text("Kernels, operators and modules").click()
        page.get_by_role("radio", name="Operators").click()
        before = state(page)
        page.get_by_role("button", name="Copy link").click()
        expect(page.locator("code", has_text="/compare?")).to_contain_text("changed=Operators", timeout=SLOW)
        link = page.locator("code", has_text="/compare?").inner_text().replace("\n", "")
        expect(page.get_by_text("This link works on this machine only.")).to_be_visible(timeout=SLOW)
        # It must not be shown with backticks.
        expect(page.locator("strong code")).to_have_text("sawtooth serve --address 0.0.0.0")
        ends = "() => [...document.querySelectorAll('.st-named .st-ptrack')].map((track) => track.children[1].getBoundingClientRect().left - track.children[0].getBoundingClientRect().right)"
        assert all(0 <= gap < 1 for gap in page.evaluate(ends))  # Each time is at the end of its bar.
        page.set_viewport_size({"width": 390, "height": 900})
        filled = "() => [...document.querySelectorAll('.st-named .st-ptrack')].map((track) => track.children[0].clientWidth / track.closest('.st-named').clientWidth)"
        page.wait_for_function(f"() => Math.max(...({filled})()) > 0.95")  # On a phone, the bars have the whole width.
        page.set_viewport_size({"width": 1440, "height": 1000})
        assert seen.foreign(server.url) == []
    finally:
        context.close()
        server.stop()
    query = parse_qs(urlparse(link).query)
    assert (query["a"], query["b"], query["changed"]) == ([a], [b], ["Operators"])
    port = urlparse(link).port
    assert port is not None
    again = start_server(tmp_path / "data", port=port)
    fresh = browser.new_context(viewport={"width": 1440, "height": 1000})
    log_in(fresh)
    try:
        page = fresh.new_page()
        page.goto(link)
        assert state(page) == before
    finally:
        fresh.close()
        again.stop()


@pytest.mark.slow
def test_long_names_of_both_runs_are_completely_visible(tmp_path: Path, page: Page) -> None:
    a, b = pair(tmp_path, ("resnet50-imagenet-fp32-workers0-batch256-before", "resnet50-imagenet-bf16-workers4-batch256-after"))
    server = start_server(tmp_path / "data")
    try:
        for width in (390, 800):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(f"{server.url}/compare?a={a}&b={b}")
            page.locator(".st-key-compare_runs button").click(timeout=SLOW)
            names = page.locator("[data-testid=stMultiSelect] [role=group] [data-tag] > span")
            expect(names.first).to_be_visible(timeout=SLOW)
            cut = "nodes => nodes.filter(node => node.clientWidth && node.scrollWidth > node.clientWidth).map(node => node.innerText)"
            assert names.count() >= 2 and names.evaluate_all(cut) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        server.stop()


def test_the_html_comparison_opens_from_disk_and_loads_nothing(tmp_path: Path, page: Page, seen: PageLog) -> None:
    from typer.testing import CliRunner

    from sawtooth.app.cli import cli

    hostile = "<img src=http://evil.example/a.png onerror=window.pwned=1>"
    a, b = pair(tmp_path, ("before", hostile))
    output = tmp_path / "report.html"
    arguments = ["compare", a, b, "--data", str(tmp_path / "data"), "--format", "html", "--output", str(output)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    page.goto(output.as_uri())
    expect(page.locator(".st-move i").first).to_be_visible(timeout=SLOW)
    expect(page.locator("h1")).to_contain_text("than A")  # A name of this length is below the headline.
    expect(page.get_by_text("<img src=http://evil.example").first).to_be_visible()
    assert page.evaluate("() => window.pwned === undefined")
    assert [url for url in seen.urls if not url.startswith(("file:", "data:", "blob:"))] == []
    assert seen.errors == []


@pytest.mark.slow
def test_the_html_report_opens_from_disk_and_loads_nothing(tmp_path: Path, page: Page, context: BrowserContext) -> None:
    hostile = "<img src=http://evil.example/a.png onerror=window.pwned=1>"
    _, b = pair(tmp_path, ("before", hostile))
    server = start_server(tmp_path / "data")
    try:
        page.goto(f"{server.url}/verdict?run={b}")
        page.get_by_role("button", name="Report").click(timeout=SLOW)
        with page.expect_download(timeout=SLOW) as download:
            page.get_by_role("button", name="One HTML file").click(timeout=SLOW)
        report = tmp_path / "run.html"
        download.value.save_as(report)
    finally:
        server.stop()
    page = context.new_page()  # The app's page would continue to call its server.
    seen = PageLog(page)
    page.goto(report.as_uri())
    amounts = page.locator(".st-big .st-of > :first-child")  # The ranges are below them.
    expect(amounts).to_have_text([re.compile(r"^800\s*µs$"), re.compile(r"^≈\s450\s*µs$")])
    expect(page.locator(".st-big .st-of > small")).to_contain_text(["488 to 840", "436 to 553"])
    expect(page.get_by_text("<img src=http://evil.example")).to_be_visible()
    assert page.locator(".bar div").first.bounding_box()["width"] > 0  # type: ignore[index]
    assert page.evaluate("() => window.pwned === undefined")
    assert [url for url in seen.urls if not url.startswith(("file:", "data:"))] == []
