"""Tests of the timeline in a real browser: lost time, findings, ranks and other runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import ChromeTrace
from tests.support.servers import Server, fetch
from tests.support.timeline_page import opened, settled, until, view

pytestmark = pytest.mark.browser


@pytest.mark.slow
def test_one_key_opens_the_longest_and_the_next_lost_time(example_server: Server, gpt_run: str, page: Page) -> None:
    opened(page, example_server, gpt_run)
    complete = view(page)
    page.keyboard.press("l")  # The picture has no focus.
    details = page.get_by_role("region", name="Details")
    expect(details).to_contain_text("lost to")
    expect(details.get_by_role("button", name=re.compile("^Ended by"))).to_be_visible()
    chosen = "(({start, end, source}) => [start, end, source])(sawtoothTimeline.scene.selected)"
    first = page.evaluate(chosen)
    assert first[2] == "gaps"
    start, end = view(page)
    assert start <= first[0] and first[1] <= end and end - start < (complete[1] - complete[0]) / 2
    page.get_by_role("button", name="Longest lost time").click()
    until(page, f"sawtoothTimeline.scene.selected.start !== {first[0]}")
    second = page.evaluate(chosen)
    assert second[1] - second[0] <= first[1] - first[0]
    expect(details).to_contain_text("lost to")
    until(page, "location.search.includes('t1=' + sawtoothTimeline.place().t1)")
    page.wait_for_timeout(700)  # Wait until the page has also processed the range.
    page.go_back()  # Each place is one entry of the history, with its selection.
    until(page, f"sawtoothTimeline.scene.selected?.start === {first[0]}")
    assert view(page) == pytest.approx((start, end), abs=2)
    page.go_back()
    until(page, "!sawtoothTimeline.scene.selected")
    assert view(page) == complete


def test_a_finding_opens_with_all_its_places_and_has_a_link(
    example_server: Server, gpt_run: str, page: Page, context: BrowserContext
) -> None:
    findings = json.loads(fetch(example_server, f"/api/v1/runs/{gpt_run}/report"))["findings"]
    rule = next(f["rule"] for f in findings if any("start_ns" in row for row in f["evidence"]))
    page.goto(f"{example_server.url}/verdict?run={gpt_run}")
    opened(page, example_server, gpt_run, f"&finding={rule}")
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
def test_changes_are_above_the_timeline_and_one_key_steps_through_them(
    example_server: Server, gpt_run: str, page: Page
) -> None:
    findings = [
        f for f in json.loads(fetch(example_server, f"/api/v1/runs/{gpt_run}/report"))["findings"] if f["predicted_step_ms"]
    ]
    opened(page, example_server, gpt_run)
    changes, card = page.get_by_role("group", name="What to change"), page.locator(".finding")
    expect(changes.get_by_role("button")).to_have_count(min(len(findings), 3))
    expect(changes.get_by_role("button").first).to_have_attribute("title", re.compile(re.escape(findings[0]["title"])))
    place = page.locator("canvas.lanes").bounding_box()
    page.keyboard.press("g")
    expect(card).to_contain_text(findings[0]["fix"])
    opened_at = page.locator("canvas.lanes").bounding_box()
    assert place is not None and opened_at is not None
    assert opened_at["x"] == place["x"] and abs(opened_at["y"] - place["y"]) < 1, "the card replaces the list of changes"
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
def test_a_table_row_opens_its_place(example_server: Server, gpt_run: str, page: Page) -> None:
    opened(page, example_server, gpt_run, "&in_view=Lost+time+in+view")
    grid = page.get_by_test_id("stDataFrame")
    expect(grid).to_be_visible()
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 15, box["y"] + 55)  # The column that selects the first row.
    until(page, "sawtoothTimeline.scene.selected?.source === 'gaps'")
    start, end = page.evaluate("(({start, end}) => [start, end])(sawtoothTimeline.scene.selected)")
    first = page.evaluate(
        f"fetch('/api/v1/runs/{gpt_run}/timeline/longest?recording=' + sawtoothTimeline.data.tracks[0].recording"
        " + '&device=0&start=0&end=' + sawtoothTimeline.data.extent + '&nth=0').then(a => a.json())"
    )
    assert (start, end) == (first["slice"]["start"], first["slice"]["end"]), "the longest is first"
    until(page, "sawtoothTimeline.tiles.settled() && !sawtoothTimeline.move")
    low, high = view(page)
    assert low <= start and end <= high and (high - low) < 20 * (end - start)
    expect(page.locator("canvas.lanes")).to_be_focused()


@pytest.mark.slow
def test_a_second_run_is_below_the_first_and_both_have_a_link(example_server: Server, gpt_run: str, page: Page) -> None:
    runs = {item["name"]: item["id"] for item in json.loads(fetch(example_server, "/api/v1/runs"))["runs"]}
    other = next(id_ for name, id_ in runs.items() if id_ != gpt_run)
    opened(page, example_server, gpt_run)
    page.get_by_role("button", name="With another run").click()
    page.get_by_role("combobox", name="Another run, under this one").click()
    page.get_by_role("option", name=next(name for name, id_ in runs.items() if id_ == other)).first.click()
    page.wait_for_url(re.compile(f"beside={other}"))
    until(page, "sawtoothTimeline.data.tracks.length === 2 && sawtoothTimeline.tiles.settled()")
    page.keyboard.press("Escape")
    address = page.url
    page.goto(f"{example_server.url}/runs")
    page.goto(address)
    settled(page)
    steps = page.evaluate(
        "sawtoothTimeline.scene.lanes.filter(l => l.kind === 'steps').map(l => l.steps.find(s => s.counted).start)"
    )
    assert len(steps) == 2
    assert steps[0] == steps[1], "the first counted steps start at the same place"
    names = page.locator(".gutter .name").all_inner_texts()
    assert all(name.startswith(("A", "B", "GPU activity +3")) for name in names if name), names
    # The selection is requested for the other run, too.
    until(page, "[...sawtoothTimeline.painter.drawn.rows.keys()].some(key => key.startsWith('1.gaps'))")
    page.evaluate("sawtoothTimeline.selectRange({start: 0, end: sawtoothTimeline.data.extent}, true)")
    expect(page.get_by_role("region", name="Details")).to_contain_text(
        re.compile("A: Where the time goes.*B: Where the time goes", re.S)
    )


def test_a_click_on_a_rank_and_step_opens_that_rank(example_server: Server, page: Page, tmp_path: Path) -> None:
    traces = job(4, 2, Planted(loader_us={3: 800.0}), mesh=True)
    files = [(trace.write(tmp_path / f"{i}.json"), f"{i}.json") for i, trace in enumerate(traces)]
    ranks = ingest_into_runs(DataFolder(example_server.data), files, name="four ranks").runs[0].id
    page.goto(f"{example_server.url}/ranks?run={ranks}")
    # A square of a rank that is not the slowest. The slowest is the default and does not appear in the address.
    square = page.locator(".js-plotly-plot .scatterlayer .points path").first
    expect(square).to_be_attached(timeout=60_000)
    square.scroll_into_view_if_needed()
    box = square.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2 + 4, box["y"] + box["height"] / 2)
    page.wait_for_url(re.compile(rf"/timeline\?run={ranks}&device=[0-2]"))


@pytest.mark.slow
def test_the_overview_of_a_run_without_gpu_shows_threads(example_server: Server, page: Page, tmp_path: Path) -> None:
    trace = ChromeTrace()
    for i in range(20):
        trace.op(f"aten::op{i}", i * 100.0, i * 100.0 + 60)
    host = (
        ingest_into_runs(
            DataFolder(example_server.data), [(trace.write(tmp_path / "host.json"), "host.json")], name="host only"
        )
        .runs[0]
        .id
    )
    opened(page, example_server, host)
    painted = """() => { const map = sawtoothTimeline.root.querySelector('.map');
        const pixels = map.getContext('2d').getImageData(4, 6, map.width - 8, map.height - 12).data;
        return pixels.filter((value, i) => i % 4 === 3 && value > 0).length; }"""
    until(page, f"({painted})() > 500")
