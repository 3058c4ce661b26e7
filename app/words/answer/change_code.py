"""The code of a change in words: the number of its lines, and the alternative that its advice names."""

from __future__ import annotations

from sawtooth.analysis.run.model import Finding
from sawtooth.app import format as fmt
from sawtooth.app.words import advice

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_OR = ", or "  # An action's ``how`` begins with this text if it names an alternative.


def cost(finding: Finding) -> str:
    """Return the number of lines that a change takes, such as "one line"; "" without code."""
    added, alternative = count_added_lines(finding), _alternative(finding)
    if not added:
        return ""
    purpose = alternative.partition(":")[0] if (code := _code(finding)) and code in alternative else ""
    return f"{number_word(added)} line{'' if added == 1 else 's'}{f' to {purpose}' if purpose else ''}"


def count_added_lines(finding: Finding) -> int:
    """Return the number of lines of code that a change adds."""
    diff = advice.diff(finding.changes[0]).splitlines() if finding.changes else []
    return sum(line.startswith("+ ") and bool(line[2:].split("#")[0].strip()) for line in diff)


def instead(finding: Finding) -> str:
    """Return the alternative that the finding's advice names, with code in backticks; "" without one."""
    if not (alternative := _alternative(finding)):
        return ""
    code = _code(finding)
    return f"Or {alternative.replace(code, f'`{code}`') if code else alternative}"


def _alternative(finding: Finding) -> str:
    """Return the alternative that an action names; "" without one."""
    instruction = finding.action.how
    return instruction.removeprefix(_OR) if instruction.startswith(_OR) else ""


def _code(finding: Finding) -> str:
    return finding.changes[0].after.split("#")[0].strip() if finding.changes else ""


def number_word(count: int) -> str:
    """Return ``count`` as a word up to nine, else as a number."""
    return WORDS[count] if count < len(WORDS) else fmt.count(count)
