"""Browser tests of the timeline's details of a slice, a range and lost time.

They also test notes, and the links back to earlier views.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import ChromeTrace
from tests.support.servers import Server, fetch
from tests.support.timeline_page import opened, settled, until, view

pytestmark = pytest.mark.browser

STEPS, STEP_US = 6, 2000.0
ADDITIONS, ADDITION_US = 5, 210.0  # Each addition takes the host 210 µs to launch and the GPU 2 µs.
MATMUL = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"


@pytest.fixture(scope="module")
def run(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a loop with a matrix product, then slow launches from a line of train.py."""
    trace = ChromeTrace()
    for i in range(STEPS):
        at = i * STEP_US
        trace.step(i, at, at + STEP_US)
        line = {"Python id": 2 * i + 1, "Python parent id": None}
        trace.host("python_function", "train.py(7): train", at + 1, at + STEP_US - 1, **line)
        inner = {"Python id": 2 * i + 2, "Python parent id": 2 * i + 1}
        trace.host("python_function", "torch/nn/modules/linear.py(125): forward", at + 20, at + 400, **inner)
        trace.op("aten::mm", at + 50, at + 390, dims=[[2048, 2048], [2048, 2048]], types=["c10::BFloat16", "c10::BFloat16"])
        trace.launch((at + 60, at + 80), (at + 100, at + 900), MATMUL)
        for k in range(ADDITIONS):
            start, end = at + 910 + k * ADDITION_US, at + 910 + (k + 1) * ADDITION_US
            trace.op("aten::add_", start, end - 2)
            trace.launch((end - 12, end - 4), (end - 1, end + 1), "vectorized_add")
    path = trace.write(tmp_path_factory.mktemp("details") / "trace.json")
    return ingest_into_runs(DataFolder(server.data), [(path, "trace.json")], name="details").runs[0].id


def details_of(page: Page) -> Locator:
    return page.get_by_role("region", name="Details")


def click(page: Page, source: str, at_us: float) -> None:
    box = page.locator("canvas.lanes").bounding_box()
    assert box is not None
    x, y = (
        page.evaluate(f"""(() => {{ const t = sawtoothTimeline, lane = t.scene.lanes.find(l => l.spec?.source === '{source}');
        return [({at_us} * 1000 - t.scene.view.start) / t.nsPerPixel(), lane.top + 22 + lane.row / 2]; }})()""")
    )
    page.mouse.click(box["x"] + x, box["y"] + y)


def test_a_click_on_a_slice_shows_its_details(server: Server, run: str, page: Page) -> None:
    opened(page, server, run)
    origin = page.evaluate("sawtoothTimeline.data.steps[0].start") / 1000
    click(page, "gpu", origin + 500)
    details = details_of(page)
    expect(details.get_by_role("heading")).to_contain_text("gemm")
    for fact in (
        "800.000\N{NO-BREAK SPACE}µs",
        "ProfilerStep#0, 41\N{NO-BREAK SPACE}% of it",
        "[[2048,2048],[2048,2048]]",
        "attainable",
        "All of this name",
    ):
        expect(details).to_contain_text(fact)
    frames = details.get_by_role("list", name="Python stack, your own line first").get_by_role("listitem")
    expect(frames.first).to_have_text("train.py(7): train")
    expect(frames).to_have_count(2)
    expect(details).to_contain_text(re.compile("starts .* after its launch"))
    assert page.evaluate("sawtoothTimeline.drawer.links.some(link => link.role === 'launch')"), (
        "an arrow links the launch to the slice"
    )
    all_of_these = details.get_by_role("button", name="Show all of these")
    all_of_these.click()
    expect(all_of_these).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".said")).to_contain_text("gemm")

    details.get_by_role("button", name=re.compile("^Launched by")).click()
    expect(details.get_by_role("heading")).to_have_text("cudaLaunchKernel")
    details.get_by_role("button", name=re.compile("^Launches")).click()
    expect(details.get_by_role("heading")).to_contain_text("gemm")


@pytest.mark.slow
def test_lost_time_links_to_its_line_and_to_the_gain(server: Server, run: str, page: Page) -> None:
    """The key works although the sidebar's link still has the focus."""
    finding = next(f for f in json.loads(fetch(server, f"/api/v1/runs/{run}/report"))["findings"] if f["predicted_step_ms"])
    page.goto(f"{server.url}/verdict?run={run}")
    page.get_by_test_id("stSidebar").get_by_role("link", name="Timeline").click()
    settled(page)
    page.keyboard.press("l")
    details = details_of(page)
    expect(details.get_by_role("heading")).to_contain_text("lost to the host launching kernels")
    expect(details.get_by_role("listitem").first).to_have_text("train.py(7): train")
    expect(details).to_contain_text(finding["fix"])
    expect(details).to_contain_text(re.compile(r"→\s≈\s[\d.]+\s.s\sper\sstep"))
    details.get_by_role("button", name="Mark all its places").click()
    expect(page.locator(".finding").get_by_role("status")).to_have_text(re.compile(r"^\d+ of \d+$"))
    marked = """() => { const map = sawtoothTimeline.root.querySelector('.map'), data = map.getContext('2d').getImageData(0, 3, map.width, 1).data;
        return data.filter((value, i) => i % 4 === 3 && value > 0).length; }"""
    until(page, f"({marked})() > 0")  # The mark is also in the strip.


@pytest.mark.slow
def test_a_selected_range_shows_its_sums(server: Server, run: str, page: Page) -> None:
    opened(page, server, run)
    box = page.locator("canvas.lanes").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=5)
    page.mouse.up()
    details = details_of(page)
    for table, row in (
        ("Where the time goes", "kernel launches"),
        ("GPU operations", "s16816gemm"),
    ):
        expect(details.locator("table", has_text=table)).to_contain_text(row)


@pytest.mark.slow
def test_a_jump_can_be_undone(server: Server, run: str, page: Page) -> None:
    opened(page, server, run)
    page.get_by_role("combobox", name="Go to step").focus()
    page.get_by_role("combobox", name="Go to step").select_option("ProfilerStep#2")
    crumbs = page.locator(".crumbs")
    expect(crumbs.locator(".here")).to_contain_text(re.compile("^2.12.ms from"))
    first = page.evaluate("[sawtoothTimeline.target.start, sawtoothTimeline.target.end]")
    page.get_by_role("button", name="Longest lost time").click()
    expect(crumbs.get_by_role("button")).to_have_count(1)
    until(page, f"sawtoothTimeline.target.start !== {first[0]} && !sawtoothTimeline.move")
    crumbs.get_by_role("button").click()
    assert list(view(page)) == first
    expect(crumbs.get_by_role("button")).to_have_count(0)
    page.get_by_role("button", name="Whole", exact=True).click()
    until(page, "sawtoothTimeline.target.start === 0")


@pytest.mark.slow
def test_a_note_is_stored_and_has_a_link(server: Server, run: str, page: Page, context: BrowserContext) -> None:
    opened(page, server, run)
    page.keyboard.press("l")
    note = details_of(page).get_by_role("textbox", name="Note on this place")
    note.fill("read it every tenth step")
    note.press("Enter")
    expect(page.locator(".notes")).to_contain_text("read it every tenth step")
    page.wait_for_url(re.compile("slice=0%3Agaps"))
    page.wait_for_timeout(700)
    other = context.new_page()
    other.goto(page.url)
    settled(other)
    assert view(other) == pytest.approx(view(page), abs=2)
    expect(details_of(other)).to_contain_text("lost to")
    other.keyboard.press("0")
    other.locator(".notes").get_by_role("button", name="read it every tenth step").click()
    until(other, "sawtoothTimeline.target.start > 0")


@pytest.mark.slow
def test_the_view_is_also_a_table_with_a_link_to_perfetto(server: Server, run: str, page: Page) -> None:
    opened(page, server, run)
    expect(page.get_by_role("button", name="Open in Perfetto")).to_be_visible()
    tables = [
        page.get_by_role("tabpanel", name=f"{what} in view").get_by_test_id("stDataFrame")
        for what in ("GPU operations", "Lost time")
    ]
    expect(tables[0]).to_contain_text("s16816gemm")  # Wait until the timeline is drawn.
    assert page.evaluate("performance.getEntriesByName('timeline-whole').length") == 1
    page.get_by_role("tab", name="Lost time in view").click()
    expect(tables[1]).to_contain_text("kernel launches")
    page.reload()
    settled(page)
    expect(page.get_by_role("tab", name="Lost time in view")).to_have_attribute("aria-selected", "true")
    expect(tables[1]).to_contain_text("kernel launches")


@pytest.mark.slow
def test_all_ranks_of_a_job_are_on_one_clock(server: Server, page: Page, tmp_path: Path) -> None:
    files = [
        (trace.write(tmp_path / f"{i}.json"), f"{i}.json") for i, trace in enumerate(job(2, 2, Planted(clock_us={1: 5000})))
    ]
    ranks = ingest_into_runs(DataFolder(server.data), files, name="two ranks").runs[0].id
    opened(page, server, ranks)
    until(page, "sawtoothTimeline.data.tracks.length === 2 && sawtoothTimeline.tiles.settled()")
    square = page.get_by_role("group", name="Ranks and steps").get_by_role(
        "button", name=re.compile("^rank 1.*ProfilerStep#1:")
    )
    square.click()  # The view moves to this rank and step.
    until(page, "sawtoothTimeline.target.start > 0 && !sawtoothTimeline.move")
    step = page.evaluate("sawtoothTimeline.data.heat[1].steps.find(step => step[5] === 'ProfilerStep#1')")
    start, end = view(page)
    assert start <= step[0] < step[1] <= end < start + 2 * (step[1] - step[0])
    assert abs(page.evaluate("sawtoothTimeline.data.tracks[1].offset")) < 500_000
    expect(page.locator(".gutter")).to_contain_text("rank 1")
    expect(page.get_by_role("button", name="Open all ranks in Perfetto")).to_be_visible()
    page.get_by_test_id("stCheckbox").filter(has_text="All ranks on one clock").click()
    until(page, "sawtoothTimeline.data.tracks.length === 1")
    page.wait_for_url(re.compile("ranks=false"))
