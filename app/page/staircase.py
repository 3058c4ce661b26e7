"""The staircase on the page: the Verdict's component, with the recording's panorama above it."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import streamlit as st

from sawtooth.analysis import reading_order
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.verdict import judge
from sawtooth.analysis.staircase import Staircase, StairStep
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.analysis.telemetry.sparkline import panorama
from sawtooth.app import format as fmt
from sawtooth.app.page import current_result, frame
from sawtooth.app.page.parts import findings, telemetry_strip
from sawtooth.app.theme import colour_of_quantity
from sawtooth.app.words import run as run_words
from sawtooth.app.words import staircase as words
from sawtooth.ingest.quantities.registry import BY_COLUMN

_HERE = Path(__file__).resolve().parents[1] / "components" / "staircase"
# Address parameters: the included changes, the bar whose details are open, the price of a GPU-hour, the remaining steps.
FIXES, OPEN, PRICE, STEPS = "fixes", "open", "price", "steps"
MOST_ROWS = 6  # bars for which first_paint.css reserves a height
MOST_ASKED = 1e15  # steps or money: a product with infinity is not a useful answer
NONE = "none"  # no change is included, where the page would include some by itself


@lru_cache(maxsize=1)
def _files() -> dict[str, str]:
    return {part: (_HERE / f"staircase.{part}").read_text(encoding="utf-8") for part in ("html", "css", "js")}


def show(result: RunResult, stairs: Staircase | None) -> None:
    """Show headline, panorama, bars and facts, and ask for the facts that only the viewer knows."""
    files = _files()
    component = st.components.v2.component("sawtooth.staircase", html=files["html"], css=files["css"], js=files["js"])
    data = data_of(result, stairs)
    st.set_page_config(page_title=data["states"][str(data["choice"])]["tab"])
    rows = min(len(data["changes"]), MOST_ROWS) if data["bars"] else "none"
    height = f"{rows}{'_panorama' if data['panorama'] else ''}"
    with st.container(key=f"stairs_of_{height}_"):  # has about its height before the component is there
        component(key=f"staircase-{result.manifest.id}", data=data)
    if stairs is not None and stairs.changes:
        _questions()


def data_of(result: RunResult, stairs: Staircase | None) -> dict[str, Any]:
    """Return the component's data."""
    asked = words.Asked(_asked(STEPS), _price(result), _waiting_w(result))
    stairs = stairs or _recorded(result)
    drawn = words.picture(result, stairs, asked, _measured(result, stairs))
    by_rule = {finding.rule: finding for finding in result.findings}
    for change in drawn["changes"]:
        change["timeline"] = _on_timeline(by_rule[change["rule"]], result)
        change["where"] = findings.own_line(result, by_rule[change["rule"]]) or change["where"]
    return {
        **drawn,
        "of": result.manifest.id,
        "dark": frame.dark(),
        "choice": choice_of(stairs, drawn["first"]) if stairs is not None else 0,
        "open": _open(stairs) if stairs is not None else None,
        "now": "now" if reading_order.best_ms(result) else "recorded",
        "panorama": _panorama(result),
        "notes": list(result.metrics["best_step_time_ms"].notes),
    }


def _recorded(result: RunResult) -> Staircase | None:
    """Return the recorded time as a single bar, for a trace without steps; None without GPU work."""
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None or result.withdrawn_by is not None:
        return None
    parts = tuple((part.owner, part.cause, part.ms) for part in verdict.parts)
    return Staircase((), 0, {0: StairStep(sum(ms for *_, ms in parts), None, None, parts)})


def _measured(result: RunResult, stairs: Staircase | None) -> list[words.Measured]:
    """Return the measured step of the run that made the changes.

    It stands below the first changes that the run no longer needs.
    """
    after = current_result.follow_up(result.manifest)
    if after is None or not current_result.is_analysed(after):
        return []
    then = current_result.run_result(after)
    verdict = judge(then.lead) if then.lead is not None else None
    if verdict is None or not verdict.step.value:
        return []
    step_ms = verdict.step.value
    parts = tuple((part.owner, part.cause, part.share * step_ms) for part in verdict.parts)
    address = f"compare?{urlencode({'a': result.manifest.id, 'b': after.id})}"
    needed = {finding.rule for finding in then.findings}
    made = list(takewhile(lambda rule: rule not in needed, stairs.changes if stairs is not None else ()))
    step = StairStep(step_ms, verdict.step.low, verdict.step.high, parts)
    return [words.Measured(fmt.clean(after.name, 40), address, step, len(made))]


def _asked(key: str) -> float | None:
    """Return a number from the address; None if it is missing or invalid."""
    try:
        number = float(st.session_state.get(key) or st.query_params.get(key) or 0.0)
    except ValueError:
        return None
    return number if 0 < number < MOST_ASKED else None


def _price(result: RunResult) -> float | None:
    return _asked(PRICE) or result.manifest.facts.price_per_gpu_hour


def _waiting_w(result: RunResult) -> float | None:
    """Return the GPU's power in W while it waits (5th percentile); None if power was not sampled."""
    telemetry = telemetry_strip.of(result, result.lead.device if result.lead else None)
    if telemetry is None or not telemetry.has("power_w"):
        return None
    return series.facts(telemetry, "power_w").get("p5")


def _questions() -> None:
    """Ask for facts that only the viewer knows: the remaining steps and the price of a GPU-hour."""
    with st.popover("Price and steps", icon=":material/savings:", type="tertiary"):
        st.number_input("Steps to go", value=None, min_value=0, key=STEPS, bind="query-params", placeholder="a day of them")
        st.number_input("Price of a GPU-hour", value=None, min_value=0.0, key=PRICE, bind="query-params", placeholder="not set")


def choice_of(stairs: Staircase, first: int) -> int:
    """Return the choice of changes in the address, else ``first``."""
    asked = st.query_params.get(FIXES, "")
    if not asked or not stairs.complete:
        return first
    rules = asked.split(",")
    choice = sum(1 << i for i, rule in enumerate(stairs.changes) if rule in rules)
    return choice if choice or asked == NONE else first


def _open(stairs: Staircase) -> int | None:
    asked = st.query_params.get(OPEN, "")
    return int(asked) if asked.isdecimal() and int(asked) <= len(stairs.changes) else None


def _on_timeline(finding: Finding, result: RunResult) -> str | None:
    """Return the address of the step with most of the evidence on the timeline.

    None if no evidence has a time.
    """
    place = findings.place_of(finding, result)
    return None if place is None else f"timeline?{urlencode({'run': result.manifest.id, **place})}"


def _panorama(result: RunResult) -> dict[str, Any] | None:
    """Return the GPU's utilization over the whole recording, with one step marked; None without telemetry."""
    telemetry = telemetry_strip.of(result, result.lead.device if result.lead else None)
    summary = telemetry_strip.summary_of(result, telemetry) if telemetry is not None else None
    column = telemetry_strip.column_of(telemetry, summary)
    spans = panorama(telemetry, column) if telemetry is not None and column is not None else []
    if telemetry is None or column is None or not any(value is not None for *_, value in spans):
        return None
    step = _one_step(result, telemetry)
    colour, length = colour_of_quantity(column), fmt.duration_ns(telemetry.span.ns)
    steady = telemetry_strip.steady(telemetry, summary)
    mean = series.facts(steady, column).get("mean")
    several = result.lead is None and len(result.telemetry.devices) > 1
    name = BY_COLUMN[column].label + (f" of GPU {telemetry.device}" if several else "")
    return {
        "name": name,
        "length": length,
        "steady": ""
        if step is not None or steady is telemetry or mean is None
        else f"; {fmt.in_unit(mean, 'percent')} on average from {telemetry_strip.stretch(steady, telemetry)}",
        "spans": spans,
        "holes": any(value is None for *_, value in spans),
        "step": step,
        "label": f"one step, {run_words.step_now(result)}",
        "light": colour.light,
        "dark": colour.dark,
        "alt": f"{name} over {length}, with one step marked." if step else f"{name} over {length}.",
    }


def _one_step(result: RunResult, telemetry: TelemetrySeries) -> tuple[float, float] | None:
    """Return the start and end of one step as shares of the recording.

    Its length is the run's own. Its place is that of a profiled step if both share a clock, else the middle of the steady part.
    """
    step_ms = reading_order.best_ms(result)
    if not step_ms or step_ms * 1e6 > telemetry.span.ns:
        return None
    lead, at = result.lead, None
    if lead is not None and len(lead.counted):
        first = int(lead.counted["start_ns"].iloc[len(lead.counted) // 2])
        if series.overlap(telemetry, TimelineSpan(first, first + round(step_ms * 1e6)), lead.trace.clock):
            at = first
    if at is None:
        steady = telemetry_strip.steady(telemetry, telemetry_strip.summary_of(result, telemetry))
        at = (steady.span.start_ns + steady.span.end_ns) // 2
    start = float(np.clip((at - telemetry.span.start_ns) / telemetry.span.ns, 0.0, 1.0))
    return start, min(start + step_ms * 1e6 / telemetry.span.ns, 1.0)
