"""Why a later change with a larger predicted gain is not the first one."""

from __future__ import annotations

from collections.abc import Collection

from sawtooth.analysis import reading_order
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.words import advice, headline
from sawtooth.app.words.answer.change_code import count_added_lines, number_word


def why_not_first(result: RunResult, lead: Finding, rules: Collection[str], now_ms: float, after_ms: float) -> str:
    """Return why a later change with a clearly larger predicted gain is not the first; "" without one.

    ``now_ms`` is the step time now. The changes of ``rules`` do not count, because the page shows the step time after them (``after_ms``).
    """
    larger = [
        (number, finding)
        for number, finding in advice.numbered(result)
        if finding.claims == "gain"
        and finding.confidence != "low"
        and not finding.may_gain_nothing
        and finding.rule not in rules
        and finding.predicted_step_ms is not None
        and finding.gain_ms > advice.NOTICEABLE_RATIO * max(lead.gain_ms, now_ms - after_ms)
    ]
    if lead.claims != "gain" or not larger:
        return ""
    number, finding = max(larger, key=lambda numbered: numbered[1].gain_ms)
    why = _why_later(finding, lead)
    reached = f"≈\u00a0{fmt.part_ms(now_ms, finding.predicted_step_ms or 0.0)}"
    action = headline.action(finding)
    return f"Change {number} ({action[0].lower()}{action[1:]}) could reach {reached}, but {why}." if why else ""


def _why_later(finding: Finding, lead: Finding) -> str:
    """Return why ``finding`` comes after ``lead``, as a clause; "" if no reason is known."""
    reasons = []
    if "late_rank" in lead.explains.topics:
        reasons.append("works around the rank's delay instead of removing its cause")
    elif reading_order.sure_gain_ms(lead) > reading_order.sure_gain_ms(finding):
        reasons.append("is less sure to gain as much")
    if (lines := count_added_lines(finding)) > count_added_lines(lead):
        reasons.append(f"takes {number_word(lines)} line{'' if lines == 1 else 's'} of code")
    if not reasons and "choice" in finding.explains.topics:
        reasons.append("has costs of its own")
    return " and ".join(reasons)
