"""Tests of the timeline in a real browser: mouse, keys, touch and lanes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect

from tests.support.chromium import PageLog, log_in
from tests.support.servers import Server
from tests.support.timeline_page import opened, until, view

pytestmark = pytest.mark.browser
PLACE = re.compile(r"[?&]t0=[\d.]+&t1=[\d.]+")


def test_the_mouse_zooms_pans_and_selects(example_server: Server, gpt_run: str, page: Page, seen: PageLog) -> None:
    opened(page, example_server, gpt_run)
    picture = page.locator("canvas.lanes")
    box = picture.bounding_box()
    assert box is not None
    lanes = page.locator(".gutter").inner_text()
    middle, y = box["x"] + box["width"] / 2, box["y"] + 88
    complete = view(page)

    page.mouse.move(middle, y)
    page.mouse.wheel(0, 300)  # The view is already whole, so the page scrolls.
    page.wait_for_timeout(400)
    assert view(page) == complete
    assert picture.bounding_box() != box
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(400)
    assert picture.bounding_box() == box, "the page scrolled back"
    middle += 5
    page.mouse.move(middle, y)
    for _ in range(12):
        page.mouse.wheel(0, -300)  # No click comes first.
    page.wait_for_timeout(100)
    near = view(page)
    assert near[1] - near[0] < (complete[1] - complete[0]) / 50
    under = near[0] + (near[1] - near[0]) * (middle - box["x"]) / box["width"]
    assert (
        abs(under - (complete[1] - complete[0]) * (middle - box["x"]) / box["width"])
        < (complete[1] - complete[0]) / box["width"]
    ), "the place under the pointer stays there"
    page.wait_for_url(PLACE)

    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(middle + 100, y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert view(page)[0] < near[0]
    assert view(page)[1] - view(page)[0] == pytest.approx(near[1] - near[0])
    assert page.locator(".gutter").inner_text() == lanes, "lanes stay where they are"
    page.wait_for_timeout(700)  # Wait until the page has processed the new range.
    now = picture.bounding_box()
    assert now is not None
    assert (now["x"], now["y"]) == pytest.approx((box["x"], box["y"]), abs=1), "the picture stays where it is"

    strip = page.locator("canvas.map").bounding_box()
    assert strip is not None
    page.mouse.move(strip["x"] + strip["width"] / 2, strip["y"] + 20)
    page.mouse.down()
    page.mouse.move(strip["x"] + strip["width"] / 3, strip["y"] + 20, steps=4)
    page.mouse.up()
    there = view(page)
    assert there[0] < near[0]
    page.keyboard.press("d")  # The overview never gets the focus, so the keys still go to the picture.
    assert view(page)[0] > there[0]
    assert seen.foreign(example_server.url) == []
    assert seen.errors == []


def test_the_keyboard_can_search_move_and_read(example_server: Server, gpt_run: str, page: Page) -> None:
    opened(page, example_server, gpt_run)
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    expect(page.locator(".found")).to_have_text(re.compile(r"1 of \d"))
    page.keyboard.press("Enter")
    expect(page.locator(".found")).to_have_text(re.compile(r"2 of \d"))
    details = page.get_by_role("region", name="Details")
    expect(details).to_contain_text(re.compile("softmax", re.IGNORECASE))

    page.keyboard.press("Escape")  # Back to the picture; the matches stay.
    page.keyboard.press("f")
    page.wait_for_url(re.compile("slice=0%3A"))
    page.keyboard.press("Enter")
    page.keyboard.press("m")  # The mark is also in the details.
    expect(details).to_contain_text("Where the time goes")
    assert page.evaluate("sawtoothTimeline.scene.range.end - sawtoothTimeline.scene.range.start") < 1e6, "only that slice"
    page.keyboard.press("n")
    expect(page.locator(".found")).to_have_text(re.compile(r"3 of \d"))
    before = details.inner_text()
    page.keyboard.press("ArrowRight")
    expect(details).not_to_have_text(before, use_inner_text=True)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(details).to_be_focused()
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.get_by_role("searchbox", name="Find slices by name")).to_have_value("")
    page.keyboard.press("n")
    expect(page.locator(".said")).to_contain_text("There is no search yet")
    # Wait until the picture stops moving.
    while page.evaluate("sawtoothTimeline.scene.view.start !== sawtoothTimeline.target.start"):
        page.wait_for_timeout(50)
    start, _ = view(page)
    page.keyboard.press("d", delay=150)
    assert view(page)[0] > start
    page.keyboard.press("0")
    expect(page.get_by_role("button", name="Whole", exact=True)).to_be_disabled()


@pytest.mark.slow
def test_lanes_fold_and_are_pinned_by_name(example_server: Server, gpt_run: str, page: Page) -> None:
    opened(page, example_server, gpt_run)
    rows = "sawtoothTimeline.scene.lanes.map(lane => lane.id + lane.rows).join()"
    before = page.evaluate(rows)
    page.get_by_role("button", name=re.compile("operators: all rows")).first.click()
    assert page.evaluate(rows) != before
    page.wait_for_url(re.compile("lanes=operators-"))
    page.get_by_role("button", name=re.compile("calls: keep at the top")).first.click()
    assert page.evaluate("sawtoothTimeline.scene.lanes[0].id").startswith("calls-")
    page.wait_for_url(re.compile("lanes=.*calls-"))
    page.keyboard.press("l")
    page.wait_for_url(re.compile("slice="))
    page.get_by_role("button", name=re.compile("calls: keep at the top")).first.click()
    assert not page.evaluate("sawtoothTimeline.scene.lanes[0].id").startswith("calls-")
    page.wait_for_timeout(700)
    page.go_back()  # The picture follows the address.
    until(page, "sawtoothTimeline.scene.lanes[0].id.startsWith('calls-')")


@pytest.mark.slow
def test_nested_lanes_have_only_needed_rows_and_do_not_move(example_server: Server, gpt_run: str, page: Page) -> None:
    opened(page, example_server, gpt_run)
    rows = "sawtoothTimeline.scene.lanes.filter(l => l.folds && !l.folded).map(l => l.rows)"
    tops = "sawtoothTimeline.scene.lanes.map(l => l.top)"
    complete = page.evaluate(rows)
    nested = page.evaluate("sawtoothTimeline.scene.lanes.filter(l => l.folds && !l.folded).map(l => l.spec.rows)")
    assert complete[0] < nested[0], "in the whole view, most rows would be almost empty"
    before = page.evaluate(tops)
    page.locator("canvas.lanes").focus()
    page.keyboard.down("w")
    page.wait_for_timeout(1200)
    assert page.evaluate(tops) == before, "no lane moves while zooming"
    page.keyboard.up("w")
    until(page, "sawtoothTimeline.tiles.settled()")
    page.wait_for_timeout(600)
    page.evaluate("sawtoothTimeline.finder.search('softmax')")
    until(page, "sawtoothTimeline.scene.selected?.source !== undefined")
    page.wait_for_timeout(1500)
    near = page.evaluate(rows)
    assert page.evaluate(
        "(s => sawtoothTimeline.scene.lanes.find(l => l.spec?.source === s.source && l.spec.lane === s.lane).rows > s.depth)(sawtoothTimeline.scene.selected)"
    )
    page.keyboard.press("s", delay=300)
    page.wait_for_timeout(600)
    assert page.evaluate(rows)[0] >= near[0], "zooming out removes no row"
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    until(page, f"({rows})[0] === {complete[0]}")


@pytest.fixture(params=[390, 800])
def phone(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": request.param, "height": 900}, has_touch=True)
    context.set_default_timeout(30_000)
    log_in(context)
    yield context.new_page()
    context.close()


class Fingers:
    """Touch events on the picture, in pixels of its canvas."""

    def __init__(self, page: Page) -> None:
        box = page.locator("canvas.lanes").bounding_box()
        assert box is not None
        self.x, self.y, self.width, self.page = box["x"], box["y"], box["width"], page
        self.session: CDPSession = page.context.new_cdp_session(page)

    def touch(self, kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": self.x + x, "y": self.y + y, "id": i} for i, (x, y) in enumerate(places)]
        self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def drag(self, begin: tuple[float, float], by: float, *, hold_ms: int = 0) -> None:
        self.touch("touchStart", begin)
        self.page.wait_for_timeout(hold_ms)
        for part in range(1, 9):
            self.touch("touchMove", (begin[0] + by * part / 8, begin[1]))
        self.touch("touchEnd")

    def pinch(self, middle: float, y: float, gap: float, to: float) -> None:
        self.touch("touchStart", (middle - gap / 2, y))
        self.touch("touchStart", (middle - gap / 2, y), (middle + gap / 2, y))
        for part in range(1, 9):
            half = (gap + (to - gap) * part / 8) / 2
            self.touch("touchMove", (middle - half, y), (middle + half, y))
        self.touch("touchEnd")


@pytest.mark.slow  # With four workers, it failed in one of three runs.
def test_touch_zooms_moves_and_selects(example_server: Server, gpt_run: str, phone: Page) -> None:
    opened(phone, example_server, gpt_run)
    fingers, complete = Fingers(phone), view(phone)
    middle = fingers.width / 2
    lost, y = (
        phone.evaluate(f"sawtoothTimeline.scene.lanes.find(l => l.spec?.source === '{source}').top + 32")
        for source in ("gaps", "gpu")
    )
    fingers.pinch(middle, y, 40, 160)
    until(phone, "sawtoothTimeline.tiles.settled()")
    near = view(phone)
    assert (complete[1] - complete[0]) / (near[1] - near[0]) == pytest.approx(4, rel=0.01), (
        "the places under the fingers stay there"
    )
    assert phone.evaluate("!sawtoothTimeline.scene.selected && !sawtoothTimeline.scene.range"), (
        "lifting two fingers is not a tap"
    )

    fingers.drag((middle, y), -60)
    pixel = (near[1] - near[0]) / fingers.width
    assert (view(phone)[0] - near[0]) / pixel == pytest.approx(60, abs=0.5)

    fingers.drag((middle - 40, lost), 80, hold_ms=700)
    selected = phone.evaluate("sawtoothTimeline.scene.range.end - sawtoothTimeline.scene.range.start")
    assert selected / pixel == pytest.approx(80, abs=1.5)
    details = phone.get_by_role("region", name="Details")
    expect(details).to_contain_text("Where the time goes")
    box = details.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 900, "details are in sight"

    phone.evaluate("sawtoothTimeline.finder.search('softmax')")
    expect(details).to_contain_text("Lasts")
    until(phone, "sawtoothTimeline.tiles.settled() && !sawtoothTimeline.move")
    softmax = details.get_by_role("heading").inner_text()
    # The axis above the lanes has 22 px.
    at, row = (
        phone.evaluate("""() => { const scene = sawtoothTimeline.scene, { start, end, track, source, lane, depth } = scene.selected;
        const found = scene.lanes.find(l => l.track === track && l.spec?.source === source && l.spec.lane === lane);
        return [((start + end) / 2 - scene.view.start) / sawtoothTimeline.nsPerPixel(), found.top + 28 + depth * found.row]; }""")
    )
    details.get_by_role("button", name="Close").click()
    expect(details).to_be_hidden()
    fingers = Fingers(phone)  # The page may have scrolled.
    fingers.touch("touchStart", (at + 1, row))
    fingers.touch("touchEnd")
    expect(details.get_by_role("heading")).to_have_text(softmax)
