"""Events that count as steps in a loop without an optimizer, and their names in sentences.

Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

BACKWARD, GRADIENT, CALL, BATCH = "backward", "gradient", "call", "batch"
# The kinds from best to worst. One step may contain several events of a worse kind.
BOUNDARIES = (BACKWARD, GRADIENT, CALL, BATCH)
STEP_NAME = "Sawtooth.step#"  # Prefix of the annotation that ends each step of a loop without an optimizer.
TIMED_NAME = "Sawtooth.timed"  # This annotation marks the profile of a program in which the recorder saw no loop.
NO_OPTIMIZER = "No optimizer stepped, so a step is "
_WORDS = {
    BACKWARD: "one backward pass",
    GRADIENT: "one gradient (torch.autograd.grad or torch.func)",
    CALL: "one call of {of}.forward",
    BATCH: "one batch of the DataLoader",
}
MAX_NAME_CHARACTERS = 100  # Characters of a module's class name. A hostile file of step marks may have longer names.


def step_in_words(boundary: str | None, of: str | None = None, line: str | None = None) -> str:
    """Return a sentence that defines a step; "" for an unknown ``boundary``.

    Example: "No optimizer stepped, so a step is one call of GPT.forward (generate.py:42)."
    """
    if boundary not in _WORDS:
        return ""
    where = f" ({line})" if line else ""
    return f"{NO_OPTIMIZER}{_WORDS[boundary].format(of=(of or 'Module')[:MAX_NAME_CHARACTERS])}{where}."
