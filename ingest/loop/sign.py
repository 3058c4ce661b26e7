"""Signs of a loop's steps where no optimizer steps, and what each is called in a sentence. Standard library only: it is part of the recorder."""

from __future__ import annotations

BACKWARD, GRADIENT, CALL, BATCH = "backward", "gradient", "call", "batch"
SIGNS = (BACKWARD, GRADIENT, CALL, BATCH)  # the best first: a step may hold several of a later one
STEP_NAME = "Sawtooth.step#"  # begins the annotation at each step's end in a profile of such a loop
_WORDS = {
    BACKWARD: "one backward pass",
    GRADIENT: "one gradient (torch.autograd.grad or torch.func)",
    CALL: "one call of {of}.forward",
    BATCH: "one batch of the DataLoader",
}
LONGEST_NAME = 100  # letters of a module's class: a file of marks may be hostile


def step_in_words(sign: str | None, of: str | None = None, line: str | None = None) -> str:
    """Return the sentence on what a step is, such as: a step is one call of GPT.forward (generate.py:42); "" of an unknown sign."""
    if sign not in _WORDS:
        return ""
    where = f" ({line})" if line else ""
    return f"No optimizer stepped, so a step is {_WORDS[sign].format(of=(of or 'Module')[:LONGEST_NAME])}{where}."
