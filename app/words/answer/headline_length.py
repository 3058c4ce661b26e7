"""Cut a headline after at most twelve words; the rest of the sentence goes to the line below."""

from __future__ import annotations

import re

from sawtooth.app import format as fmt

MAX_WORDS = 12  # A headline has at most this many words, without its factor.
_WORD = re.compile(r"\w")
_BRACKETS = re.compile(r"\([^()]*\)")
_CLAUSES = ("; ", ": ", ". ", ", ")


def words(text: str) -> int:
    """Return the number of words of a headline: a number with its unit is one, and a sign is none."""
    return sum(bool(_WORD.search(word)) for word in text.split(" "))


def split(sentence: str) -> tuple[str, str]:
    """Return a headline of at most MAX_WORDS words, and the rest of ``sentence`` for the line below."""
    if words(sentence) <= MAX_WORDS:
        return sentence, ""
    # The text inside brackets is masked, so that no cut is inside them.
    masked = _BRACKETS.sub(lambda bracket: "_" * len(bracket[0]), sentence)
    cuts = sorted({match.end() for mark in _CLAUSES for match in re.finditer(re.escape(mark), masked)}, reverse=True)
    for cut in cuts:
        head = sentence[:cut].rstrip(" ;:,")
        if words(head) <= MAX_WORDS:
            return fmt.ended(head), _sentence(sentence[cut:])
    for bracket in reversed(list(_BRACKETS.finditer(sentence))):
        head, after = sentence[: bracket.start()].rstrip(), sentence[bracket.end() :].lstrip(" ;:,.")
        if words(head) <= MAX_WORDS:
            return fmt.ended(head), " ".join(_sentence(part) for part in (bracket[0][1:-1], after) if part)
    return shortened(sentence), fmt.ended(sentence)


def has_clauses(name: str) -> bool:
    """Return whether a headline may be cut inside ``name``, such as "trace, 21 Nov 05:59:43 UTC"."""
    return any(mark in name for mark in _CLAUSES)


def _sentence(clause: str) -> str:
    return fmt.ended(f"{clause[0].upper()}{clause[1:]}")


def shortened(text: str, max_words: int = MAX_WORDS) -> str:
    """Return the first ``max_words`` words of ``text``, with an ellipsis if there are more."""
    first_words = text.split(" ")
    while words(" ".join(first_words)) > max_words:
        first_words.pop()
    return text if len(first_words) == len(text.split(" ")) else f"{' '.join(first_words)} …"
