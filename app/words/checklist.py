"""The checklist in words: what each technique would bring, is in use, finds nothing to do, or could not be checked."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.findings.checklist import Checked, Status
from sawtooth.app import format as fmt
from sawtooth.app.words.chain import as_markdown

COLUMNS = ("Technique", "State", "In this run")
STATES: dict[Status, str] = {
    "brings": "would bring {gain}",
    "found": "worth a look",
    "done": "done",
    "nothing": "nothing to gain",
    "not applicable": "not applicable",
    "not checked": "not checked",
}
TO_DO: tuple[Status, ...] = ("brings", "found")
FOLDED: dict[Status, str] = {
    "done": "in use",
    "nothing": "with nothing to gain",
    "not checked": "not checked",
    "not applicable": "not applicable",
}
ORDER: tuple[Status, ...] = tuple(STATES)


def rows(checked: Sequence[Checked]) -> list[tuple[str, str, str]]:
    """Return technique, state and sentence of each, what brings most first."""
    ordered = sorted(checked, key=lambda row: (ORDER.index(row.status), -(row.gain_ms or 0.0)))
    return [(row.technique.title, state(row), sentence(row)) for row in ordered]


def groups(checked: Sequence[Checked]) -> tuple[list[tuple[str, str, str]], list[tuple[str, list[tuple[str, str]]]]]:
    """Return the rows with something to do, and of the others technique and sentence under what they have in common: 3 in use."""
    to_do = [row for row in checked if row.status in TO_DO]
    rest = []
    for status, label in FOLDED.items():
        rows_of = [(row.technique.title, sentence(row)) for row in checked if row.status == status]
        if rows_of:
            rest.append((f"{len(rows_of)} {label}", rows_of))
    return rows(to_do), rest


def state(row: Checked) -> str:
    """Return the state in a few words."""
    return STATES[row.status].format(gain=f"{fmt.duration_ms(row.gain_ms)} a step" if row.gain_ms is not None else "")


def sentence(row: Checked) -> str:
    """Return what the run says, as a sentence."""
    text = fmt.clean(row.sentence)
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def title(checked: Sequence[Checked]) -> str:
    """Return what the checklist comes to."""
    count = {status: sum(row.status == status for row in checked) for status in ORDER}
    brings = (
        "No technique would shorten the step"
        if not count["brings"]
        else f"{fmt.many(count['brings'], 'technique')} would shorten the step"
    )
    return f"{brings}; {count['done']} in use, {count['nothing']} with nothing to gain, {count['not checked']} not checked"


def markdown(name: str, checked: Sequence[Checked]) -> str:
    """Return the checklist as GitHub-flavoured Markdown."""
    cells = [(*row[:2], fmt.markdown(row[2], None)) for row in rows(checked)]
    return as_markdown(f"## {fmt.markdown(name)}: {title(checked)}", COLUMNS, cells, numbers=False)
