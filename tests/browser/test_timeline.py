"""Tests of the timeline in a real browser: mouse, keys and links as in Perfetto."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, expect

from sawtooth.app.jobs.ingest_files import bring_in
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import ChromeTrace
from tests.support.chromium import PageLog, log_in
from tests.support.paths import SAMPLES
from tests.support.prepared import prepared
from tests.support.servers import Server, fetch, start_server, without_bundled
from tests.support.timeline_page import opened, settled, until, view

pytestmark = pytest.mark.browser

PLACE = re.compile(r"[?&]t0=[\d.]+&t1=[\d.]+")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server with two of the bundled recordings, read before it starts."""
    data = DataFolder(without_bundled(tmp_path_factory.mktemp("timeline") / "data"))
    for name in ("resnet_fixed", "gpt"):
        prepared(data, *sorted((SAMPLES / name).glob("*trace.json.gz")), *sorted((SAMPLES / name).glob("*.jsonl")), name=name)
    running = start_server(data.root)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def run(server: Server) -> str:
    return next(run.id for run in DataFolder(server.data).manifests() if run.name == "gpt")


def test_the_mouse_zooms_pans_and_selects(server: Server, run: str, page: Page, seen: PageLog) -> None:
    opened(page, server, run)
    picture = page.locator("canvas.lanes")
    box = picture.bounding_box()
    assert box is not None
    lanes = page.locator(".gutter").inner_text()
    middle, y = box["x"] + box["width"] / 2, box["y"] + 88
    whole = view(page)

    page.mouse.move(middle, y)
    page.mouse.wheel(0, 300)  # there is nothing to zoom out of: the page scrolls
    page.wait_for_timeout(400)
    assert view(page) == whole
    assert picture.bounding_box() != box
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(400)
    assert picture.bounding_box() == box, "that was the page's still"
    middle += 5
    page.mouse.move(middle, y)
    for _ in range(12):
        page.mouse.wheel(0, -300)  # without a click first
    page.wait_for_timeout(100)
    near = view(page)
    assert near[1] - near[0] < (whole[1] - whole[0]) / 50
    under = near[0] + (near[1] - near[0]) * (middle - box["x"]) / box["width"]
    assert abs(under - (whole[1] - whole[0]) * (middle - box["x"]) / box["width"]) < (whole[1] - whole[0]) / box["width"], (
        "what is under the pointer stays there"
    )
    page.wait_for_url(PLACE)

    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(middle + 100, y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert view(page)[0] < near[0]
    assert view(page)[1] - view(page)[0] == pytest.approx(near[1] - near[0])
    assert page.locator(".gutter").inner_text() == lanes, "lanes stay where they are"
    page.wait_for_timeout(700)  # until the page has spoken of the new place
    now = picture.bounding_box()
    assert now is not None
    assert (now["x"], now["y"]) == pytest.approx((box["x"], box["y"]), abs=1), "and the picture too"

    strip = page.locator("canvas.map").bounding_box()
    assert strip is not None
    page.mouse.move(strip["x"] + strip["width"] / 2, strip["y"] + 20)
    page.mouse.down()
    page.mouse.move(strip["x"] + strip["width"] / 3, strip["y"] + 20, steps=4)
    page.mouse.up()
    there = view(page)
    assert there[0] < near[0]
    page.keyboard.press("d")  # the strip has no focus of its own: letters are the picture's still, and a tap is enough
    assert view(page)[0] > there[0]
    assert seen.foreign(server.url) == []
    assert seen.errors == []


def test_the_keyboard_can_search_move_and_read(server: Server, run: str, page: Page) -> None:
    opened(page, server, run)
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    expect(page.locator(".found")).to_have_text(re.compile(r"1 of \d"))
    page.keyboard.press("Enter")
    expect(page.locator(".found")).to_have_text(re.compile(r"2 of \d"))
    details = page.get_by_role("region", name="Details")
    expect(details).to_contain_text(re.compile("softmax", re.IGNORECASE))

    page.keyboard.press("Escape")  # back to the picture: what was found stays
    page.keyboard.press("f")
    page.wait_for_url(re.compile("slice=0%3A"))
    page.keyboard.press("Enter")
    page.keyboard.press("m")  # in the details, too
    expect(details).to_contain_text("Who owned the time")
    assert page.evaluate("sawtoothTimeline.scene.range.end - sawtoothTimeline.scene.range.start") < 1e6, "that slice alone"
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
    while page.evaluate("sawtoothTimeline.scene.view.start !== sawtoothTimeline.target.start"):  # until the picture rests
        page.wait_for_timeout(50)
    start, _ = view(page)
    page.keyboard.press("d", delay=150)
    assert view(page)[0] > start
    page.keyboard.press("0")
    expect(page.get_by_role("button", name="Whole", exact=True)).to_be_disabled()


@pytest.mark.slow
def test_one_key_opens_the_longest_and_the_next_lost_time(server: Server, run: str, page: Page) -> None:
    opened(page, server, run)
    whole = view(page)
    page.keyboard.press("l")  # the focus is not on the picture
    details = page.get_by_role("region", name="Details")
    expect(details).to_contain_text("lost to")
    expect(details.get_by_role("button", name=re.compile("^Ended by"))).to_be_visible()
    chosen = "(({start, end, source}) => [start, end, source])(sawtoothTimeline.scene.selected)"
    first = page.evaluate(chosen)
    assert first[2] == "gaps"
    start, end = view(page)
    assert start <= first[0] and first[1] <= end and end - start < (whole[1] - whole[0]) / 2
    page.get_by_role("button", name="Longest lost time").click()
    until(page, f"sawtoothTimeline.scene.selected.start !== {first[0]}")
    second = page.evaluate(chosen)
    assert second[1] - second[0] <= first[1] - first[0]
    expect(details).to_contain_text("lost to")
    until(page, "location.search.includes('t1=' + sawtoothTimeline.place().t1)")
    page.wait_for_timeout(700)  # until the page has heard of the place too
    page.go_back()  # once for each place, with what was chosen there
    until(page, f"sawtoothTimeline.scene.selected?.start === {first[0]}")
    assert view(page) == pytest.approx((start, end), abs=2)
    page.go_back()
    until(page, "!sawtoothTimeline.scene.selected")
    assert view(page) == whole


def test_a_finding_opens_with_all_its_places_and_has_a_link(
    server: Server, run: str, page: Page, context: BrowserContext
) -> None:
    findings = json.loads(fetch(server, f"/api/v1/runs/{run}/report"))["findings"]
    rule = next(f["rule"] for f in findings if any("start_ns" in row for row in f["evidence"]))
    page.goto(f"{server.url}/verdict?run={run}")
    opened(page, server, run, f"&finding={rule}")
    card = page.locator(".finding")
    expect(card).to_be_visible()
    expect(card.get_by_role("status")).to_have_text(re.compile(r"^\d+ of \d+$"))
    before = card.get_by_role("status").inner_text()
    card.get_by_role("button", name="Next place").click()
    expect(card.get_by_role("status")).not_to_have_text(before)
    page.wait_for_url(re.compile("finding="))
    until(page, "location.search.includes(sawtoothTimeline.place().t0)")

    other = context.new_page()
    other.goto(page.url)
    settled(other)
    assert view(other) == pytest.approx(view(page), abs=2)
    expect(other.locator(".finding")).to_be_visible()
    there = view(page)
    page.go_back()
    until(page, f"sawtoothTimeline.target.start !== {there[0]}")


@pytest.mark.slow
def test_changes_are_above_the_timeline_and_one_key_steps_through_them(server: Server, run: str, page: Page) -> None:
    findings = [f for f in json.loads(fetch(server, f"/api/v1/runs/{run}/report"))["findings"] if f["predicted_step_ms"]]
    opened(page, server, run)
    changes, card = page.get_by_role("group", name="What to change"), page.locator(".finding")
    expect(changes.get_by_role("button")).to_have_count(min(len(findings), 3))
    expect(changes.get_by_role("button").first).to_contain_text(findings[0]["title"])
    place = page.locator("canvas.lanes").bounding_box()
    page.keyboard.press("g")
    expect(card).to_contain_text(findings[0]["fix"])
    opened_at = page.locator("canvas.lanes").bounding_box()
    assert place is not None and opened_at is not None
    assert (opened_at["x"], opened_at["y"]) == (place["x"], place["y"]), "the card takes the room of what it was opened from"
    expect(card.get_by_role("status")).to_have_text(re.compile(r"^\d+ of \d+$"))
    expect(changes).to_be_hidden()
    until(page, "sawtoothTimeline.scene.marks.length > 0 && !sawtoothTimeline.move")
    assert page.evaluate("""(() => { const {marks, mark} = sawtoothTimeline.scene, length = m => m.end - m.start;
        const step = sawtoothTimeline.data.steps.find(s => s.start <= marks[mark].start && s.end >= marks[mark].end);
        const {start, end} = sawtoothTimeline.target;
        return marks.every(m => length(m) <= length(marks[mark])) && start <= step.start && end >= step.end; })()"""), (
        "the longest, in its step"
    )
    page.keyboard.press("Shift+G")
    expect(changes).to_be_visible()
    changes.get_by_role("button").first.click()
    expect(card).to_contain_text(findings[0]["fix"])


@pytest.mark.slow
def test_lanes_fold_and_are_pinned_by_name(server: Server, run: str, page: Page) -> None:
    opened(page, server, run)
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
    page.go_back()  # the picture is what the address says
    until(page, "sawtoothTimeline.scene.lanes[0].id.startsWith('calls-')")


@pytest.mark.slow
def test_nested_lanes_have_only_needed_rows_and_do_not_move(server: Server, run: str, page: Page) -> None:
    opened(page, server, run)
    rows = "sawtoothTimeline.scene.lanes.filter(l => l.folds && !l.folded).map(l => l.rows)"
    tops = "sawtoothTimeline.scene.lanes.map(l => l.top)"
    whole = page.evaluate(rows)
    nested = page.evaluate("sawtoothTimeline.scene.lanes.filter(l => l.folds && !l.folded).map(l => l.spec.rows)")
    assert whole[0] < nested[0], "seen whole, most rows would be all but empty"
    before = page.evaluate(tops)
    page.locator("canvas.lanes").focus()
    page.keyboard.down("w")
    page.wait_for_timeout(1200)
    assert page.evaluate(tops) == before, "nothing jumps while one zooms"
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
    assert page.evaluate(rows)[0] >= near[0], "zooming out takes no row away"
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    until(page, f"({rows})[0] === {whole[0]}")


@pytest.mark.slow
def test_a_table_row_opens_its_place(server: Server, run: str, page: Page) -> None:
    opened(page, server, run, "&in_view=Lost+time+in+view")
    grid = page.get_by_test_id("stDataFrame")
    expect(grid).to_be_visible()
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 15, box["y"] + 55)  # the first row's own column
    until(page, "sawtoothTimeline.scene.selected?.source === 'gaps'")
    start, end = page.evaluate("(({start, end}) => [start, end])(sawtoothTimeline.scene.selected)")
    first = page.evaluate(
        f"fetch('/api/v1/runs/{run}/timeline/longest?recording=' + sawtoothTimeline.data.tracks[0].recording"
        " + '&device=0&start=0&end=' + sawtoothTimeline.data.extent + '&nth=0').then(a => a.json())"
    )
    assert (start, end) == (first["slice"]["start"], first["slice"]["end"]), "the longest stands first"
    until(page, "sawtoothTimeline.tiles.settled() && !sawtoothTimeline.move")
    low, high = view(page)
    assert low <= start and end <= high and (high - low) < 20 * (end - start)
    expect(page.locator("canvas.lanes")).to_be_focused()


@pytest.mark.slow
def test_a_second_run_is_below_the_first_and_both_have_a_link(server: Server, run: str, page: Page) -> None:
    runs = {each["name"]: each["id"] for each in json.loads(fetch(server, "/api/v1/runs"))["runs"]}
    other = next(id_ for name, id_ in runs.items() if id_ != run)
    opened(page, server, run)
    page.get_by_role("button", name="With another run").click()
    page.get_by_role("combobox", name="Another run, under this one").click()
    page.get_by_role("option", name=next(name for name, id_ in runs.items() if id_ == other)).first.click()
    page.wait_for_url(re.compile(f"beside={other}"))
    until(page, "sawtoothTimeline.data.tracks.length === 2 && sawtoothTimeline.tiles.settled()")
    page.keyboard.press("Escape")
    address = page.url
    page.goto(f"{server.url}/runs")
    page.goto(address)
    settled(page)
    steps = page.evaluate(
        "sawtoothTimeline.scene.lanes.filter(l => l.kind === 'steps').map(l => l.steps.find(s => s.counted).start)"
    )
    assert len(steps) == 2
    assert steps[0] == steps[1], "the first counted steps begin at one place"
    names = page.locator(".gutter .name").all_inner_texts()
    assert all(name.startswith(("A", "B")) or "utilization" in name or "power" in name for name in names if name), names
    # what is chosen of the other run is asked of it
    until(page, "[...sawtoothTimeline.painter.drawn.rows.keys()].some(key => key.startsWith('1.gaps'))")
    page.evaluate("sawtoothTimeline.selectRange({start: 0, end: sawtoothTimeline.data.extent}, true)")
    expect(page.get_by_role("region", name="Details")).to_contain_text(
        re.compile("A: Who owned the time.*B: Who owned the time", re.S)
    )


def test_a_click_on_a_rank_and_step_opens_that_rank(server: Server, page: Page, tmp_path: Path) -> None:
    traces = job(4, 2, Planted(loader_us={3: 800.0}), mesh=True)
    files = [(trace.write(tmp_path / f"{i}.json"), f"{i}.json") for i, trace in enumerate(traces)]
    ranks = bring_in(DataFolder(server.data), files, name="four ranks").runs[0].id
    page.goto(f"{server.url}/ranks?run={ranks}")
    square = page.locator(
        ".js-plotly-plot .scatterlayer .points path"
    ).first  # of a rank that is not the slowest: that one, the screen's own choice, leaves the address at once
    expect(square).to_be_attached(timeout=60_000)
    square.scroll_into_view_if_needed()
    box = square.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2 + 4, box["y"] + box["height"] / 2)
    page.wait_for_url(re.compile(rf"/timeline\?run={ranks}&device=[0-2]"))


@pytest.fixture(params=[390, 800])
def phone(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Return a page with touch instead of a mouse."""
    context = browser.new_context(viewport={"width": request.param, "height": 900}, has_touch=True)
    context.set_default_timeout(30_000)
    log_in(context)
    yield context.new_page()
    context.close()


class Fingers:
    """Fingers on the picture; places are pixels of its canvas."""

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


@pytest.mark.slow  # failed once in three runs beside three other workers
def test_touch_zooms_moves_and_selects(server: Server, run: str, phone: Page) -> None:
    opened(phone, server, run)
    fingers, whole = Fingers(phone), view(phone)
    middle = fingers.width / 2
    lost, y = (
        phone.evaluate(f"sawtoothTimeline.scene.lanes.find(l => l.spec?.source === '{source}').top + 32")
        for source in ("gaps", "gpu")
    )
    fingers.pinch(middle, y, 40, 160)
    until(phone, "sawtoothTimeline.tiles.settled()")
    near = view(phone)
    assert (whole[1] - whole[0]) / (near[1] - near[0]) == pytest.approx(4, rel=0.01), (
        "what lies under the fingers stays under them"
    )
    assert phone.evaluate("!sawtoothTimeline.scene.selected && !sawtoothTimeline.scene.range"), (
        "two fingers that leave are no tap"
    )

    fingers.drag((middle, y), -60)
    pixel = (near[1] - near[0]) / fingers.width
    assert (view(phone)[0] - near[0]) / pixel == pytest.approx(60, abs=0.5)

    fingers.drag((middle - 40, lost), 80, hold_ms=700)
    selected = phone.evaluate("sawtoothTimeline.scene.range.end - sawtoothTimeline.scene.range.start")
    assert selected / pixel == pytest.approx(80, abs=1.5)
    details = phone.get_by_role("region", name="Details")
    expect(details).to_contain_text("Who owned the time")
    box = details.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 900, "details are in sight"

    phone.evaluate("sawtoothTimeline.finder.search('softmax')")
    expect(details).to_contain_text("Lasts")
    until(phone, "sawtoothTimeline.tiles.settled() && !sawtoothTimeline.move")
    softmax = details.get_by_role("heading").inner_text()
    at, row = (
        phone.evaluate("""() => { const scene = sawtoothTimeline.scene, { start, end, track, source, lane, depth } = scene.selected;
        const found = scene.lanes.find(l => l.track === track && l.spec?.source === source && l.spec.lane === lane);
        return [((start + end) / 2 - scene.view.start) / sawtoothTimeline.nsPerPixel(), found.top + 28 + depth * found.row]; }""")
    )  # the axis above the lanes has 22 px
    details.get_by_role("button", name="Close").click()
    expect(details).to_be_hidden()
    fingers = Fingers(phone)  # the page may have moved
    fingers.touch("touchStart", (at + 1, row))
    fingers.touch("touchEnd")
    expect(details.get_by_role("heading")).to_have_text(softmax)


@pytest.mark.slow
def test_the_overview_of_a_run_without_gpu_shows_threads(server: Server, page: Page, tmp_path: Path) -> None:
    trace = ChromeTrace()
    for i in range(20):
        trace.op(f"aten::op{i}", i * 100.0, i * 100.0 + 60)
    host = bring_in(DataFolder(server.data), [(trace.write(tmp_path / "host.json"), "host.json")], name="host only").runs[0].id
    opened(page, server, host)
    painted = """() => { const map = sawtoothTimeline.root.querySelector('.map');
        const pixels = map.getContext('2d').getImageData(4, 6, map.width - 8, map.height - 12).data;
        return pixels.filter((value, i) => i % 4 === 3 && value > 0).length; }"""
    until(page, f"({painted})() > 500")
