"""The first screen of a run: the step time now and after the change, and the first three changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from sawtooth.analysis.findings.recorded.source_lines import FRAME, spoken, user_stack
from sawtooth.analysis.knowledge.frames import MODULE
from sawtooth.analysis.outlook import Outlook
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.run.verdict import judge
from sawtooth.analysis.telemetry import series
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts import poster_bars
from sawtooth.app.page import cards, current, frame
from sawtooth.app.page.parts import findings, step_strip, telemetry_strip
from sawtooth.app.page.parts.findings import PRICE, SHOWN_FIRST, STEPS
from sawtooth.app.words import advice, evidence, headline, promise, savings
from sawtooth.app.words import host as host_words
from sawtooth.app.words import run as words
from sawtooth.app.words.savings import Amount

ACTION_WIDTH = {1: 600, 2: 400, 3: 300}  # minimum width in pixels, by the number of actions in a row
NO_LINES = "The code here is an example: this trace has no Python stacks, so your own lines are not known. `sawtooth run --stacks` or with_stack=True records them."
WITHOUT_STEPS = "Without steps in the trace nothing more exact is known."
MOST_TRIED = 8  # pieces of evidence in which a code line is searched for
NAMED = 2  # largest number of ticked changes that the headline names in full
_HTML = templates.pieces("poster.html")
MOST_ASKED = 1e15  # steps or money: a product with infinity is no useful answer


@st.fragment
def show(result: RunResult) -> None:
    """Show the headline, the step time now and after the ticked changes, and the changes.

    If no change is ticked, the prediction is for the first one.
    """
    answer = st.container(key="answer")  # on a phone, it comes before the buttons that share the page
    place = st.container(gap="xsmall")  # above the changes, so that the viewer sees the effect of a tick
    claimed = [(n, finding) for n, finding in findings.claimed(result) if not advice.same_as_lateness(result, finding)]
    # Optional changes of a healthy run are folded, because they are not urgent.
    first = [] if headline.healthy(result) else (claimed or advice.about_the_loss(result))[:SHOWN_FIRST]
    ticked = _actions(result, first)
    if any(finding.changes for _, finding in first) and result.lead is not None and not result.lead.trace.with_stack:
        cards.small(NO_LINES)
    with st.container(gap="xsmall"):
        findings.show_plan(result)
        ticked += findings.show_rest(result, [finding for _, finding in first])
    with answer:
        cards.headline(headline.on_poster(result, ticked), advice.below(result, ticked))
        if result.manifest.failure is not None:
            cards.caution(fmt.clean(result.manifest.failure))
    before = savings.step(result)
    with place:
        if before is None:
            _recorded(result)
        else:
            _now_and_after(result, before, ticked)


def _actions(result: RunResult, first: Sequence[tuple[int, Finding]]) -> list[Finding]:
    """Show the ``first`` changes with their numbers; return those that are ticked.

    If no finding covers the largest loss, show what to do about it before them.
    """
    loss = advice.of_the_loss(result)
    if not first and not loss:
        return []
    ticked: list[Finding] = []
    beside_each_other = min(len(first) + (loss is not None), max(ACTION_WIDTH))
    with st.grid(min_column_width=ACTION_WIDTH[beside_each_other], gap="small"):
        if loss:
            _of_the_loss(*loss, recorded=len(result.lead.counted) > 0 if result.lead else False)
        why = advice.why_first(result)
        for number, finding in first:
            why_here, why = why or advice.beside_others(result, finding), None  # only the first change has this reason
            ticked += _action(number, finding, result, advice.brings(result, finding), why_here, alone=len(first) == 1)
    return ticked


def _now_and_after(result: RunResult, before: Amount, ticked: list[Finding]) -> None:
    """Show a step now and after the ``ticked`` changes, or after the first change if none is ticked."""
    if ticked:
        forecast, one = findings.forecast(result, ticked), ticked[0] if len(ticked) == 1 else None
    else:
        change = headline.first_change(result)
        forecast, one = headline.forecast(result), change[0] if change else None
    st.set_page_config(page_title=headline.tab_title(result, ticked, forecast))
    _step(result, before, forecast, one, whole=not ticked)
    if len(ticked) > NAMED:
        cards.small(f"Included: {'; '.join(headline.action(finding) for finding in ticked)}.")
    if ticked and forecast is None:
        cards.small("The combined effect of these changes cannot be replayed.")


def _recorded(result: RunResult) -> None:
    """Show where the recorded time goes, for a trace without steps."""
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is not None:
        whole = fmt.duration_ms(sum(part.ms for part in verdict.parts))
        bars = [replace(bar, name="recorded") for bar in poster_bars.now_and_after(verdict, whole, None, dark=frame.dark())]
        st.html(_HTML.drawn(bars, poster_bars.unlabelled(bars)))


def _step(result: RunResult, before: Amount, forecast: Outlook | None, change: Finding | None, *, whole: bool) -> None:
    """Show a step now and after the change; with ``whole``, also after the whole plan."""
    after, times, facts = None, None, host_words.facts(result, forecast)
    plan = advice.planned(result, forecast.after_ms if forecast is not None else None) if whole else None
    bars = poster_bars.of_run(result, before.text, forecast, dark=frame.dark(), plan=plan)
    alt = f"A step takes {before.text}"
    if forecast is not None:
        after, times = savings.after(forecast, change), fmt.speedup(forecast.speedup)
        forecast = savings.with_known_mfu(forecast, result.metrics)
        alt += f", after the change {after.text}, {times}"
        facts += savings.lines(
            forecast, change, steps=_asked(STEPS), price_per_gpu_hour=_price(result), waiting_w=_waiting_w(result)
        )
    elif savings.says_mfu(result.metrics) and (used := words.mfu_fact(result.metrics)) is not None:
        facts += [used]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="answer_row"):
        st.html(_HTML.answer(before, after, times, f"{alt}.", facts))
        if forecast is not None:
            _questions()
    if bars:
        st.html(_HTML.drawn(bars, poster_bars.unlabelled(bars)))
        if advice.unseen_here(result) is not None:
            cards.small("The bar is divided as the profiled steps are, which do not show what the headline speaks of.")
    if forecast is not None:
        _measured(result, forecast)
    if result.lead is not None:
        step_strip.show(result.manifest.id, result.lead)


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
    with st.popover("Price", icon=":material/savings:", type="tertiary", help="Steps to go and the price of a GPU-hour"):
        st.number_input("Steps to go", value=None, min_value=0, key=STEPS, bind="query-params", placeholder="a day of them")
        st.number_input("Price of a GPU-hour", value=None, min_value=0.0, key=PRICE, bind="query-params", placeholder="not set")


def _measured(result: RunResult, forecast: Outlook) -> None:
    """Compare the prediction with the measured step time of the run that made the change, if there is one."""
    after = current.follow_up(result.manifest)
    if after is None or not current.is_analysed(after):
        return
    measured = current.run_result(after)
    best = headline.best_ms(measured)
    if best is None:
        return
    predicted, seen, name = fmt.duration_ms(forecast.after_ms), fmt.duration_ms(best), fmt.markdown(after.name, 40)
    label = f"Predicted ≈\u00a0{predicted}, measured {seen} in {name}"
    frame.link("compare", label, a=result.manifest.id, b=after.id, icon=":material/compare_arrows:")


def _of_the_loss(what: str, brings: str, *, recorded: bool) -> None:
    """Show what to do about the largest loss if no finding covers it, before any advice about recording."""
    with st.container(border=True, gap="xsmall", height="stretch"):
        st.html(_HTML.action(1, what, brings, "" if recorded else WITHOUT_STEPS, False, None, None))
        frame.link("idle", "Where it is lost", run=st.session_state.get("run"), icon=":material/hourglass_empty:")


def _action(
    number: int, finding: Finding, result: RunResult, brings: str, why_here: str | None, *, alone: bool
) -> list[Finding]:
    """Show one change, with the user's own line if the trace has it; return it in a list if it is ticked."""
    with st.container(border=True, gap="xsmall", height="stretch"):
        left = f"{promise.left(finding):.1%}" if finding.claims == "gain" and not alone else None
        unsure = finding.confidence == "low" and finding.claims != "caution"
        st.html(_HTML.action(number, headline.action(finding), brings, promise.detail(finding), unsure, left, why_here))
        if stack := _stack(result.lead, finding):
            st.html(_HTML.place(*_named(stack)))
        elif (where := evidence.where(finding)) is not None:
            st.html(_HTML.place(*where))
        if finding.changes:
            st.html(_HTML.diff(advice.first_lines(finding.changes[0])))
        with st.container(horizontal=True, gap="small", vertical_alignment="center", key=f"change_actions-{number}"):
            ticked = bool(finding.edits) and findings.tick(finding, f"combine-{result.manifest.id}-{number}-{finding.rule}")
            findings.why_button(number, finding, result)
    return [finding] if ticked else []


def _stack(rank: RankResult | None, finding: Finding) -> tuple[str, ...]:
    """Return the user's own stack frames from the first piece of evidence that has any."""
    starts = [int(row["start_ns"]) for row in finding.evidence if row.get("start_ns") is not None]
    if rank is None or not rank.trace.with_stack:
        return ()
    root = str(frame.data_folder().root)
    stacks = (_frames(root, rank.recording_id, rank.device, start) for start in starts[:MOST_TRIED])
    return next((stack for stack in stacks if stack), ())


@st.cache_data(max_entries=256, show_spinner=False)
def _frames(root: str, recording_id: str, device: int, start_ns: int) -> tuple[str, ...]:
    with frame.library().open(recording_id) as recording:
        return user_stack(recording, device, start_ns)


def _named(stack: tuple[str, ...]) -> tuple[str, str]:
    """Return the user's own line and the path of calls to it.

    Examples are "train.py:96 in step" and "main › train".
    """
    parsed = [match for name in stack if (match := FRAME.match(name))]
    path = " › ".join(match["function"] for match in parsed[:-1] if match["function"] != MODULE)
    return spoken(stack[-1]), path
