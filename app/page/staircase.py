"""The staircase of the Verdict: a bar for the step now, and one for the step after each change."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from sawtooth.analysis import reading_order
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.verdict import judge
from sawtooth.analysis.staircase import Staircase, StairStep
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.page import current_result, frame, panorama
from sawtooth.app.page.address import OPEN
from sawtooth.app.page.parts import findings
from sawtooth.app.theme import GOOD
from sawtooth.app.words import headline
from sawtooth.app.words import staircase as words
from sawtooth.app.words.answer.cost_facts import CostFacts

_HERE = Path(__file__).resolve().parents[1] / "components" / "staircase"
# Address parameters: the included changes, the price of a GPU-hour, the remaining steps.
FIXES, PRICE, STEPS = "fixes", "price", "steps"
MAX_ROWS = 6  # first_paint.css reserves a height for up to this number of bars.
MAX_INPUT = 1e15  # For the viewer's numbers. Larger ones, such as infinity, would make the computed costs useless.
NONE = "none"  # Value of FIXES. The viewer has left out all changes; an empty value means the page's own choice.


@lru_cache(maxsize=1)
def _files() -> dict[str, str]:
    files = {part: (_HERE / f"staircase.{part}").read_text(encoding="utf-8") for part in ("html", "css", "js")}
    return files | {"css": (templates.FOLDER / "textures.css").read_text(encoding="utf-8") + files["css"]}


def show(result: RunResult, stairs: Staircase | None) -> bool:
    """Show headline, panorama, bars and facts; return whether the facts depend on ``questions``."""
    files = _files()
    component = st.components.v2.component("sawtooth.staircase", html=files["html"], css=files["css"], js=files["js"])
    data = data_of(result, stairs)
    st.set_page_config(page_title=data["states"][str(data["choice"])]["tab"])
    rows = min(len(data["changes"]) + len(data["measured"]), MAX_ROWS) if data["bars"] else "none"
    height = f"{rows}{'_panorama' if data['panorama'] else ''}"
    with st.container(key=f"stairs_of_{height}_"):  # This key reserves about this height until the component is drawn.
        component(key=f"staircase-{result.manifest.id}", data=data)
    return stairs is not None and bool(stairs.changes) and not data["states"][str(data["choice"])]["limit"]


def data_of(result: RunResult, stairs: Staircase | None) -> dict[str, Any]:
    """Return the component's data."""
    entered = CostFacts(_number_entered(STEPS), _price(result))
    stairs = stairs or _recorded(result)
    drawn = words.picture(result, stairs, entered, _measured(result, stairs))
    by_rule = {finding.rule: finding for finding in result.findings}
    for change in drawn["changes"]:
        change["timeline"] = _on_timeline(by_rule[change["rule"]], result)
        change["where"] = findings.own_line(result, by_rule[change["rule"]]) or change["where"]
    return {
        **drawn,
        "of": result.manifest.id,
        "dark": frame.is_dark(),
        "good": GOOD.on(frame.is_dark()),
        "choice": choice_of(stairs, drawn["first"]) if stairs is not None else 0,
        "open": _open(stairs) if stairs is not None else None,
        "now": "now" if reading_order.best_ms(result) else "recorded",
        "rank": f"rank {result.lead.rank}" if result.lead and result.lead.rank is not None and len(result.ranks) > 1 else "",
        "panorama": panorama.of(result),
        "notes": _notes(result),
    }


def _notes(result: RunResult) -> list[str]:
    """Return the interval of the step now, and the notes on it."""
    step = result.metrics["best_step_time_ms"]
    has_interval = step.low is not None and step.high is not None
    return [*([f"90 % interval: {fmt.span_ms(step.low or 0.0, step.high or 0.0)}."] if has_interval else []), *step.notes]


def _recorded(result: RunResult) -> Staircase | None:
    """Return the recorded time as a single bar, for a trace without steps; None without GPU work."""
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None or result.withdrawn_by is not None:
        return None
    parts = tuple((part.owner, part.cause, part.ms) for part in verdict.parts)
    return Staircase((), 0, {0: StairStep(sum(ms for *_, ms in parts), None, None, parts)})


def _measured(result: RunResult, stairs: Staircase | None) -> list[words.MeasuredChoice]:
    """Return the bar of a later run in which changes were made; empty if no such run is analysed.

    The bar comes after the last of the first changes that the later run no longer needs.
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
    applied = list(takewhile(lambda rule: rule not in needed, stairs.changes if stairs is not None else ()))
    step = StairStep(step_ms, verdict.step.low, verdict.step.high, parts)
    return [words.MeasuredChoice(fmt.clean(after.name, 40), address, step, len(applied), headline.about_now(then))]


def _number_entered(key: str) -> float | None:
    """Return the number that the viewer entered or the address contains; None if it is missing or invalid."""
    try:
        number = float(st.session_state.get(key) or st.query_params.get(key) or 0.0)
    except ValueError:
        return None
    return number if 0 < number < MAX_INPUT else None


def _price(result: RunResult) -> float | None:
    return _number_entered(PRICE) or result.manifest.facts.price_per_gpu_hour


def questions() -> None:
    """Ask for facts that only the viewer knows: the remaining steps and the price of a GPU-hour."""
    with (
        st.expander("Your cost: price of a GPU-hour, steps to train", icon=":material/payments:"),
        st.grid(min_column_width=240),
    ):
        st.number_input(
            "Steps to train", value=None, min_value=0, key=STEPS, bind="query-params", placeholder="the steps of one day"
        )
        st.number_input("Price of a GPU-hour", value=None, min_value=0.0, key=PRICE, bind="query-params", placeholder="not set")


def choice_of(stairs: Staircase, first: int) -> int:
    """Return the changes that the address includes, as a bit for each change; by default ``first``."""
    included = st.query_params.get(FIXES, "")
    if not included or not stairs.complete:
        return first
    rules = included.split(",")
    choice = sum(1 << i for i, rule in enumerate(stairs.changes) if rule in rules)
    return choice if choice or included == NONE else first


def _open(stairs: Staircase) -> int | None:
    """Return the number of the bar whose details are open, from the address."""
    bar = st.query_params.get(OPEN, "")
    return int(bar) if bar.isdecimal() and int(bar) <= len(stairs.changes) else None


def _on_timeline(finding: Finding, result: RunResult) -> str | None:
    """Return the timeline's address of the step with most evidence; None if no evidence has a time."""
    place = findings.place_of(finding, result)
    return None if place is None else f"timeline?{urlencode({'run': result.manifest.id, **place})}"
