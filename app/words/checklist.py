"""The checklist in words: the run's changes, then the techniques without a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.analysis import reading_order
from sawtooth.analysis.findings.checklist import Checked, Status
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.words import advice, headline, predicted_gain

COLUMNS = ("Technique", "State", "In this run")
TO_DO_COLUMNS = ("What to change", "Gain", "Why, in this run")
STATES: dict[Status, str] = {
    "done": "in use",
    "nothing": "nothing to gain",
    "not applicable": "not applicable",
    "not checked": "cannot be seen",
}
REMARK = "remark: no gain is predicted"


@dataclass(frozen=True)
class ToDo:
    """A change with its ``number`` on the Verdict, its gain, and its reason.

    ``technique`` is the name in tuning guides. ``detail`` is the step time after the change ("" without a prediction). ``overlap`` says
    whether another change saves the same time.
    """

    number: int
    action: str
    technique: str
    gain_text: str
    detail: str
    because: str
    overlap: str

    @property
    def is_remark(self) -> bool:
        """Whether this is only a remark, without anything to change."""
        return self.gain_text == REMARK


def to_do(result: RunResult, checked: Sequence[Checked]) -> list[ToDo]:
    """Return every finding in the Verdict's order, with its number and figures."""
    techniques = {row.rule: row.technique.title for row in checked if row.finding is not None}
    rows = [_to_do(number, finding, techniques, result) for number, finding in advice.numbered(result)]
    if (loss := advice.advice_on_loss(result)) is None:
        return rows
    action, saving = loss
    return [ToDo(1, action, "", f"saves {saving}", "", "the largest loss of time", ""), *rows]


def _to_do(number: int, finding: Finding, techniques: dict[str | None, str], result: RunResult) -> ToDo:
    is_remark = not reading_order.is_advice(finding)
    return ToDo(
        number,
        fmt.clean(headline.action(finding)),
        techniques.get(finding.rule, ""),
        REMARK if is_remark else advice.gain_text(result, finding),
        "" if is_remark else predicted_gain.detail(finding),
        _sentence(finding.title),
        # The title of a change that pays later already names the other change.
        "" if finding.pays_later else advice.note_on_other_changes(result, finding) or "",
    )


def rows(result: RunResult, checked: Sequence[Checked]) -> list[tuple[str, str, str]]:
    """Return technique, state and sentence of each change, then of each technique without a finding."""
    changes = [
        (row.technique or row.action, f"{row.number}. {', '.join(filter(None, (row.gain_text, row.detail)))}", row.because)
        for row in to_do(result, checked)
    ]
    return changes + without_finding(checked)


def without_finding(checked: Sequence[Checked]) -> list[tuple[str, str, str]]:
    """Return technique, state and sentence of the techniques without a finding, by state."""
    return [
        (row.technique.title, label, _sentence(row.sentence))
        for status, label in STATES.items()
        for row in checked
        if row.status == status
    ]


def _sentence(text: str) -> str:
    """Return the text as a sentence with a capital letter and a full stop."""
    text = fmt.clean(text)
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def effect(result: RunResult) -> str:
    """Return how many changes of ``to_do`` would shorten the step, and how many may."""
    advised = [finding for finding in result.findings if reading_order.is_advice(finding)]
    would = sum((finding.claims == "gain" and not finding.may_gain_nothing) or finding.pays_later for finding in advised)
    would += advice.advice_on_loss(result) is not None
    total = len(advised) + (advice.advice_on_loss(result) is not None)
    if not total:
        return "No technique would shorten the step"
    if 0 < would < total:
        return f"{fmt.many(total, 'change')}: {would} would shorten the step, {total - would} may"
    return f"{fmt.many(total, 'change')} {'would' if would else 'may'} shorten the step"


def states(checked: Sequence[Checked]) -> str:
    """Return how many of the other techniques are in use, gain nothing, do not apply or cannot be seen."""
    count = {status: sum(row.status == status for row in checked) for status in STATES}
    not_applicable = f", {count['not applicable']} not applicable" if count["not applicable"] else ""
    return f"{fmt.many(count['done'], 'technique')} in use, {count['nothing']} with nothing to gain{not_applicable}, {count['not checked']} cannot be seen"


def title(result: RunResult, checked: Sequence[Checked]) -> str:
    """Return the summary of the checklist: the effect of the changes, and the other techniques by state."""
    return f"{effect(result)}; {states(checked)}"
