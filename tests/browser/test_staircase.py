"""Tests of the plan chart in a browser, without a server.

A tick moves the bars at once, and the address follows.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from sawtooth.app.words import staircase
from tests.support.paths import ROOT
from tests.support.stairs import stairs_of

HERE = ROOT / "app" / "components" / "staircase"
PAGE = """<!doctype html><html lang="en"><title>Staircase</title><style>:root {{ --st-text-color: #14181d; --st-background-color: #fff; --st-secondary-background-color: #f3f5f7; --st-primary-color: #0072b2;
--st-font: sans-serif; --st-code-font: monospace; --st-base-radius: 4px }} {css}</style><main id="root">{html}</main>
<script type="module">{js}
window.mount = (data) => mounted({{ parentElement: document.querySelector("#root"), data }});</script>"""


@pytest.fixture
def drawn(page: Page) -> dict[str, Any]:
    """Draw a step of 100 ms that two changes shorten to 50 ms and 25 ms. The chart has its own address."""
    return _drawn(page, (50.0, 45.0, 55.0), (25.0, 22.0, 30.0))


def _drawn(page: Page, *steps: tuple[float, float, float]) -> dict[str, Any]:
    """Draw a step of 100 ms, and the ``steps`` (ms, low, high) after each change."""
    result, stairs = stairs_of(*steps)
    data = staircase.picture(result, stairs, staircase.CostFacts())
    data |= {
        "of": "run",
        "dark": False,
        "choice": data["first"],
        "open": None,
        "now": "now",
        "notes": [],
        "panorama": _panorama(),
    }
    parts = {part: (HERE / f"staircase.{part}").read_text(encoding="utf-8") for part in ("html", "css", "js")}
    parts["js"] = parts["js"].replace("export default function", "function mounted")
    page.route("http://stairs.test/**", lambda route: route.fulfill(body=PAGE.format(**parts), content_type="text/html"))
    page.goto("http://stairs.test/verdict?run=run")
    page.evaluate("data => window.mount(data)", json.loads(json.dumps(data)))
    return data


def _panorama() -> dict[str, Any]:
    """Return ten seconds at 50 % with a gap in the middle."""
    return {"name": "GPU activity", "length": "10 s", "spans": [[0.0, 0.4, 50.0], [0.4, 0.6, None], [0.6, 1.0, 50.0]], "holes": True, "step": [0.2, 0.21],
            "label": "one step, 100 ms", "light": "#00796B", "dark": "#4DB6AC", "alt": "GPU activity over 10 s."}  # fmt: skip


def test_a_selected_change_updates_bars_text_and_address(drawn: dict[str, Any], page: Page) -> None:
    row = page.locator('.row[data-row="2"]')
    share = "row => [...row.querySelectorAll('.seg')].reduce((sum, part) => sum + parseFloat(part.style.width), 0)"
    assert row.evaluate(share) == pytest.approx(25.0)  # 25 of 100 ms
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "Use the fused optimizer: 100 → ≈\xa050.0\xa0ms 2.0\xa0× (1.8 to 2.2)"
    )
    expect(page.locator(".whole")).to_contain_text("Both changes: ≈\xa025.0\xa0ms")
    page.get_by_label("Include: Use the fused optimizer").first.uncheck()
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "Use the fused optimizer: 100 → ≈\xa025.0\xa0ms 4.0\xa0× (3.3 to 4.5)"
    )
    assert page.url.endswith("verdict?run=run&fixes=rule-1")
    assert page.title().startswith("Use the fused optimizer: 100 → ≈\xa025.0\xa0ms")
    assert "off" in (page.locator('.row[data-row="1"]').get_attribute("class") or "").split()
    assert float(page.locator(".verdict").get_attribute("data-redraw-ms") or "inf") >= 0
    page.go_back()
    expect(page.get_by_label("Include: Use the fused optimizer").first).to_be_checked()
    expect(page.locator(".whole")).to_contain_text("Both changes: ≈\xa025.0\xa0ms")
    assert page.url.endswith("verdict?run=run")


def test_a_bar_opens_its_change_and_keys_switch_bars(drawn: dict[str, Any], page: Page) -> None:
    page.get_by_role("button", name="Now a step takes").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#open-1 h2")).to_have_text("rule-0 costs time")
    expect(page.locator("#open-1 .diff .p").first).to_contain_text("b = 3")
    assert "open=1" in page.url
    page.keyboard.press("x")
    assert "fixes=rule-1" in page.url
    page.keyboard.press("Escape")
    expect(page.locator("#open-1")).to_be_hidden()


def test_a_telemetry_gap_is_drawn_and_the_page_fits_a_phone(drawn: dict[str, Any], page: Page) -> None:
    line = page.locator(".plot path[stroke-width='1.6']").get_attribute("d") or ""
    assert line == "M0 50L400 50M600 50L1000 50"
    for width in (1440, 800, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")  # Wait until the bars have the new width.


LABELS = """() => [...document.querySelectorAll('.row:not(.now)')].flatMap((row) => {
  const box = (part) => part.getBoundingClientRect(), label = box(row.querySelector('.lab'));
  const ends = [...row.querySelectorAll('.seg'), row.querySelector('.gone')].map(box).filter((one) => one.width).map((one) => [one.right, one.top, one.bottom]);
  const covered = ends.filter(([x, top, bottom]) => label.left < x - 1 && x + 1 < label.right && label.top < bottom - 1 && top + 1 < label.bottom);
  return covered.length || label.right > innerWidth || label.width < 100 ? [[innerWidth, row.dataset.row, label.left, label.right, ...covered]] : [];
})"""


@pytest.mark.parametrize("selected", [True, False])
@pytest.mark.parametrize("after", [99.0, 90.0, 70.0, 45.0, 10.0])
def test_a_label_covers_no_end_of_a_bar(after: float, selected: bool, page: Page) -> None:
    """This is true for any gain of a change and for any width of the page."""
    _drawn(page, (after, after - 4, after + 1), (after - 2, after - 6, after))
    if not selected:
        for box in page.get_by_role("checkbox").all():
            box.uncheck()
    page.add_style_tag(content="* { transition: none !important }")
    for width in (1900, 1440, 1000, 800, 660, 560, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
        )
        assert page.evaluate(LABELS) == []
