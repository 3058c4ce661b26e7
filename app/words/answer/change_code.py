"""The code of a change in words: how many lines it takes, and the other way that its advice names."""

from __future__ import annotations

from sawtooth.analysis.run.model import Finding
from sawtooth.app import format as fmt
from sawtooth.app.words import advice

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_OR = ", or "  # An action's ``how`` separates two ways with this text.


def cost(finding: Finding) -> str:
    """Return what a change costs in lines, such as "one line"; "" without code."""
    added, other_way = count_added_lines(finding), _other_way(finding)
    way = other_way.partition(":")[0] if (code := _code(finding)) and code in other_way else ""
    return f"{number_word(added)} line{'' if added == 1 else 's'}{f' to {way}' if way else ''}" if added else ""


def count_added_lines(finding: Finding) -> int:
    """Return the number of lines of code that a change adds."""
    diff = advice.diff(finding.changes[0]).splitlines() if finding.changes else []
    return sum(line.startswith("+ ") and bool(line[2:].split("#")[0].strip()) for line in diff)


def instead(finding: Finding) -> str:
    """Return the other way that the finding's advice names, with its code marked; "" without one."""
    if not (way := _other_way(finding)):
        return ""
    code = _code(finding)
    return f"Or {way.replace(code, f'`{code}`') if code else way}"


def _other_way(finding: Finding) -> str:
    """Return the other way that an action names; "" without one."""
    how = finding.action.how
    return how.removeprefix(_OR) if how.startswith(_OR) else ""


def _code(finding: Finding) -> str:
    return finding.changes[0].after.split("#")[0].strip() if finding.changes else ""


def number_word(count: int) -> str:
    """Return a small count as a word."""
    return WORDS[count] if count < len(WORDS) else fmt.count(count)
