"""Tests of Live in a real browser: a replayed session advances and becomes a run.

It continues after the server ends.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sawtooth.ingest.schema import DataFolder
from tests.support.chromium import PageLog
from tests.support.paths import ROOT
from tests.support.servers import start_server, until, without_bundled

pytestmark = pytest.mark.browser

RECORDING = ROOT / "sample_traces" / "resnet_starved" / "nvml.jsonl"


def samples_shown(page: Page) -> int:
    text = page.get_by_text(re.compile(r"samples over")).first.inner_text()
    found = re.search(r"([\d,]+) samples over", text)
    assert found, text
    return int(found[1].replace(",", ""))


def test_a_session_continues_after_a_restart_and_becomes_a_run(tmp_path: Path, page: Page, seen: PageLog) -> None:
    data = without_bundled(tmp_path / "data")
    command = [sys.executable, "-m", "sawtooth.ingest.sampler", "--replay", str(RECORDING), "--loop", "--name", "a replay"]
    server = start_server(data)
    sampler = subprocess.Popen([*command, "--out", str(data / "live")], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        page.goto(f"{server.url}/live?window=10+s")
        expect(page.get_by_text("samples over")).to_be_visible(timeout=60_000)
        page.wait_for_url(re.compile("session="))
        expect(page.locator("canvas").first).to_be_visible(timeout=60_000)
        drawn = page.locator("canvas").evaluate_all("nodes => { window.drawn = nodes; return nodes.length }")
        before = samples_shown(page)
        expect(page.get_by_text(f"{before:,} samples over")).to_have_count(0, timeout=60_000)
        expect(page.get_by_text(re.compile(r"GPU 0 works \d+\s%"))).to_be_visible(timeout=60_000)
        assert samples_shown(page) > before
        assert drawn > 5 and page.evaluate("window.drawn.filter(node => !node.isConnected).length") == 0  # nothing blinks
        page.set_viewport_size({"width": 390, "height": 844})  # On a phone, the numbers are visible without scrolling.
        for number in (r"^GPU activity\s*\d+\s%", r"^Memory of"):
            box = page.locator(".tile").filter(has_text=re.compile(number)).bounding_box()
            assert box is not None and box["y"] + box["height"] < 844, number
        page.set_viewport_size({"width": 1440, "height": 1000})
        address, port = page.url, int(server.url.rsplit(":", 1)[1])
        server.stop()
        held = next((data / "live").glob("*/samples-0001.jsonl")).read_bytes().count(b"\n")
        server = start_server(data, port=port)
        page.goto(address)
        expect(page.get_by_text("samples over")).to_be_visible(timeout=60_000)
        assert samples_shown(page) >= held - 5  # The header and events are lines too.
        expect(page.get_by_role("radio", name="10 s")).to_be_checked()
        assert page.url == address
        sampler.terminate()
        sampler.wait(20)
        expect(page.get_by_text("ended: stopped")).to_be_visible(timeout=60_000)
        page.get_by_role("button", name="Analyse").click()
        page.wait_for_url(re.compile(r"/timeline\?view=telemetry&run=[0-9a-f]{16}"), timeout=90_000)
        expect(page.get_by_text(re.compile("samples over .*, one every")).first).to_be_visible(timeout=60_000)
        (run,) = DataFolder(data).manifests()
        assert run.name == "a replay"
        assert run.id in page.url
        assert seen.foreign(server.url) == []
    finally:
        sampler.kill()
        sampler.wait()
        server.stop()


@pytest.mark.slow
def test_without_a_gpu_the_bundled_recording_plays_and_stops(tmp_path: Path, page: Page) -> None:
    data = without_bundled(tmp_path / "data")
    server = start_server(data)
    try:
        page.goto(f"{server.url}/live")
        expect(page.get_by_role("heading", level=1)).to_contain_text(
            re.compile(r"Example: GPU 0 worked \d+\s% of each"), timeout=60_000
        )
        page.get_by_role("button", name="Watch your own GPU").click()
        expect(page.get_by_text("sawtooth sample --push")).to_be_visible()
        page.keyboard.press("Escape")
        # The page shows the example until there is a session.
        expect(page.locator("canvas").first).to_be_visible(timeout=60_000)
        page.get_by_role("button", name="Replay it").click()
        expect(page.get_by_text("samples over")).to_be_visible(timeout=60_000)
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("ended: stopped")).to_be_visible(timeout=60_000)
        page.get_by_role("button", name="Replay the bundled recording").click()
        expect(page.get_by_role("button", name="Stop")).to_be_visible(timeout=60_000)
    finally:
        server.stop()
    (first, second) = sorted((data / "live").glob("*/samples-0001.jsonl"))  # The sampler ended with its server.
    until(lambda: all(b'{"k":"end"' in path.read_bytes().splitlines()[-1] for path in (first, second)), 30)
