"""The checklist in words: what each technique would bring, is in use, is not needed, or cannot be seen from what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.analysis.findings.checklist import Checked, Status
from sawtooth.app import format as fmt
from sawtooth.app.words.comparisons.chain import as_markdown

COLUMNS = ("Technique", "State", "In this run")
UNSEEN = "Why, and what to record"
STATES: dict[Status, str] = {
    "brings": "saves ≈\u00a0{gain}",
    "found": "worth a look",
    "done": "done",
    "nothing": "not there",
    "not applicable": "not applicable",
    "not checked": "cannot be seen",
}
TO_DO: tuple[Status, ...] = ("brings", "found")
FOLDED: dict[Status, str] = {
    "not checked": "cannot be seen from this recording: what to record",
    "done": "in use already",
    "nothing": "looked for and not there: nothing to gain",
    "not applicable": "not applicable to this training",
}
BRIEF: tuple[Status, ...] = ("nothing", "not applicable")  # the heading has said it: a sentence a row would repeat it
ORDER: tuple[Status, ...] = tuple(STATES)


def rows(checked: Sequence[Checked]) -> list[tuple[str, str, str]]:
    """Return technique, state and sentence of each: what the run's advice begins with, then what brings most."""
    ordered = sorted(checked, key=lambda row: (not row.leads, ORDER.index(row.status), -(row.gain_ms or 0.0)))
    return [(row.technique.title, state(row), sentence(row)) for row in ordered]


@dataclass(frozen=True)
class Group:
    """Techniques of which the run says the same: a heading with their number (3 in use already), technique and sentence of each.

    ``unseen``: the recording cannot tell. ``brief``: the heading says it all, and only the titles need be read.
    """

    heading: str
    rows: list[tuple[str, str]]
    unseen: bool
    brief: bool


def groups(checked: Sequence[Checked]) -> tuple[list[tuple[str, str, str]], list[Group]]:
    """Return the rows with something to do, and the others by what they have in common."""
    to_do = [row for row in checked if row.status in TO_DO]
    rest = []
    for status, label in FOLDED.items():
        rows_of = [(row.technique.title, sentence(row)) for row in checked if row.status == status]
        if rows_of:
            rest.append(Group(f"{len(rows_of)} {label}", rows_of, status == "not checked", status in BRIEF))
    return rows(to_do), rest


def state(row: Checked) -> str:
    """Return the state in a few words."""
    return STATES[row.status].format(gain=f"{fmt.duration_ms(row.gain_ms)} a step" if row.gain_ms is not None else "")


def sentence(row: Checked) -> str:
    """Return what the run says, as a sentence."""
    text = fmt.clean(row.sentence)
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def finding(checked: Sequence[Checked]) -> str:
    """Return what the checklist finds first: what the run's advice begins with, else the technique that saves most, else what to look at."""
    looked = sum(row.status == "found" for row in checked)
    saving = [row for row in checked if row.status == "brings" and row.gain_ms is not None]
    leading = next((row for row in checked if row.leads), None)
    if leading is not None and leading not in saving:
        return f"{leading.technique.title}: {leading.sentence.rstrip('.')}."
    if saving:
        most = leading or max(saving, key=lambda row: row.gain_ms or 0.0)
        return f"{most.technique.title} would save ≈\u00a0{fmt.duration_ms(most.gain_ms or 0.0)} a step."
    if looked:
        return f"No technique is known to shorten the step; {looked} {'is' if looked == 1 else 'are'} worth a look."
    return "No technique of the tuning guides would shorten the step."


def title(checked: Sequence[Checked]) -> str:
    """Return what the checklist comes to."""
    count = {status: sum(row.status == status for row in checked) for status in ORDER}
    brings = (
        "No technique would shorten the step"
        if not count["brings"]
        else f"{fmt.many(count['brings'], 'technique')} would shorten the step"
    )
    return f"{brings}; {count['done']} in use, {count['nothing']} not needed, {count['not checked']} cannot be seen"


def markdown(name: str, checked: Sequence[Checked]) -> str:
    """Return the checklist as GitHub-flavoured Markdown."""
    cells = [(*row[:2], fmt.markdown(row[2], None)) for row in rows(checked)]
    return as_markdown(f"## {fmt.markdown(name)}: {title(checked)}", COLUMNS, cells, numbers=False)
