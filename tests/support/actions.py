"""Actions of findings that tests build."""

from __future__ import annotations

from sawtooth.analysis.run.model import Action


def act(text: str) -> Action:
    """Return the action of a sentence such as “Compile the model: torch.compile.”.

    The first clause of the sentence says what to change.
    """
    at = min((text.index(sign) for sign in (": ", ", ") if sign in text), default=len(text.rstrip(".")))
    verb, _, what = text[:at].partition(" ")
    return Action(verb, what, text[at:])
