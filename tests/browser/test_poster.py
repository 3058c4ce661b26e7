"""The answer of the Verdict in the room that it has in a window of 800 pixels."""

from __future__ import annotations

from playwright.sync_api import Page

from sawtooth.app import templates
from sawtooth.app.charts.poster_bars import StepBar
from sawtooth.app.words.savings import Amount

ROOM_PX = 415  # of the answer beside the sidebar, the margins and the price


def test_the_speed_up_stands_beside_the_times_and_no_time_leaves_its_column(page: Page) -> None:
    poster = templates.pieces("poster.html")
    now = Amount("≈\u00a08.61\u00a0ms", "a step, estimated: 7.19 to 10.5\u00a0ms", False)
    after = Amount("≈\u00a07.35\u00a0ms", "predicted: 7.09 to 7.88\u00a0ms", True)
    answer = poster.answer(now, after, "1.2\u00a0×", "A step.", [])
    bar = poster.bar(StepBar("plan", "≈\u00a0116 to 158\u00a0ms", "50%", ()))
    style = (templates.FOLDER / "poster.css").read_text(encoding="utf-8")
    page.set_viewport_size({"width": 800, "height": 600})
    page.set_content(f"<style>{style} body {{ font-family: sans-serif; width: {ROOM_PX}px }}</style>{answer}{bar}")
    badge, time = page.locator("mark").bounding_box(), page.locator(".st-of strong").bounding_box()
    assert badge is not None and time is not None
    assert time["y"] <= badge["y"] + badge["height"] / 2 <= time["y"] + time["height"]
    assert page.locator(".st-ptime").evaluate("node => node.scrollWidth <= node.clientWidth")
