"""Repair invalid JSON from profilers and killed jobs, one event at a time, and report the repairs."""

from __future__ import annotations

import re

STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.S)
BARE_LITERAL = re.compile(rb"(?<![\w.])[+-]?(?:nan|inf(?:inity)?|n/a|none|undefined)(?![\w.])", re.I)
TRAILING_COMMA = re.compile(rb",(\s*[}\]])")
BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
SURROGATES = re.compile(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})")
CONTROL = re.compile(rb"[\x00-\x1f]")
FIELD = rb"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s)"
NAME_FIELD = re.compile(rb'("name"\s*:\s*")(.*?)("\s*,\s*"' + FIELD + rb'"\s*:|"\s*\})', re.S)
QUOTE = re.compile(rb'(?<!\\)((?:\\\\)*)"')


def repair(text: bytes) -> tuple[bytes, set[str]]:
    """Return ``text`` with known faults repaired, and the kinds of repair (keys of REPAIRS)."""
    kinds: set[str] = set()
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode(errors="replace").encode()
        kinds.add("utf8")
    with_escaped_name = NAME_FIELD.sub(_escape_name, text, count=1)
    if with_escaped_name != text:
        kinds.add("quote")
        text = with_escaped_name
    parts, position = [], 0
    for match in STRING.finditer(text):
        parts += [_repair_outside(text[position : match.start()], kinds), _repair_inside(match.group(), kinds)]
        position = match.end()
    parts.append(_repair_outside(text[position:], kinds))
    repaired = b"".join(parts)
    # Commas before brackets are checked last, when strings cannot be mistaken for structure.
    if TRAILING_COMMA.search(repaired) and (without_commas := _drop_commas(repaired)) != repaired:
        repaired = without_commas
        kinds.add("comma")
    return repaired, kinds


def _escape_name(match: re.Match[bytes]) -> bytes:
    return match.group(1) + QUOTE.sub(rb'\1\\"', match.group(2)) + match.group(3)


def _repair_outside(text: bytes, kinds: set[str]) -> bytes:
    repaired = BARE_LITERAL.sub(b"null", text)
    if repaired != text:
        kinds.add("literal")
    return repaired


def _repair_inside(text: bytes, kinds: set[str]) -> bytes:
    repaired = text
    if CONTROL.search(repaired):
        repaired = CONTROL.sub(lambda m: b"\\u%04x" % m.group()[0], repaired)
        kinds.add("control")
    if b"\\" in repaired:
        fixed = _double_bad_escapes(repaired)
        if fixed != repaired:
            repaired = fixed
            kinds.add("escape")
        fixed = SURROGATES.sub(lambda m: b"\\ufffd" if m.group(1) else m.group(), repaired)
        if fixed != repaired:
            repaired = fixed
            kinds.add("surrogate")
    return repaired


def _double_bad_escapes(text: bytes) -> bytes:
    parts = text.split(b"\\\\")  # A doubled backslash is valid, so only the parts between are checked.
    return b"\\\\".join(BAD_ESCAPE.sub(rb"\\\\", part) for part in parts)


def _drop_commas(text: bytes) -> bytes:
    parts, position = [], 0
    for match in STRING.finditer(text):
        parts += [TRAILING_COMMA.sub(rb"\1", text[position : match.start()]), match.group()]
        position = match.end()
    parts.append(TRAILING_COMMA.sub(rb"\1", text[position:]))
    return b"".join(parts)


REPAIRS = {
    "utf8": "Bytes that are not UTF-8 were replaced by the character �, so some names may look odd.",
    "quote": "The profiler did not escape quotes inside a name. Sawtooth escaped them.",
    "literal": "Bare NaN, Infinity or N/A, which JSON does not allow, were read as missing values.",
    "control": "Unescaped control characters inside strings were accepted.",
    "escape": "Backslashes that the profiler did not escape were read as single backslashes.",
    "surrogate": "Incomplete characters (lone surrogates) were replaced by the character �.",
    "comma": "Commas before a closing bracket were ignored.",
}
