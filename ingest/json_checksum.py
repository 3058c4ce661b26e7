"""A checksum inside a JSON file, because a flipped bit in a number leaves valid but wrong JSON.

The checksum is the last entry of the object, ``"seal": "…"``, and is computed from all bytes before this entry. A file without a checksum,
which was written by hand or by an older version, is read unchanged. Remove the entry before editing a file by hand.
"""

from __future__ import annotations

import hashlib
import re

DIGEST_BYTES = 8  # One wrong content in 2^64 has the same checksum by chance.
WILDCARD = ord("?")
ENDING = b',\n  "seal": "????????????????"\n}'  # Each ? stands for a digit.
CHECKSUM = re.compile(rb',\n  "seal": "([0-9a-f]{16})"\n}\n?')


def with_checksum(content: bytes) -> bytes:
    """Return an indented JSON object with its checksum.

    Raises ValueError if ``content`` is not an indented JSON object, or is empty.
    """
    body, end = content[:-2], content[-2:]
    if end != b"\n}" or not body.rstrip(b"{"):
        raise ValueError("only an indented JSON object can get a checksum")
    return b'%s,\n  "seal": "%s"\n}' % (body, _digest(body))


def without_checksum(content: bytes) -> bytes:
    """Return the object without its checksum, or unchanged if it has none.

    Raises ValueError if the checksum does not match.
    """
    match = CHECKSUM.search(content)
    if match is None:
        if _has_damaged_checksum(content):
            raise ValueError("its checksum is damaged")
        return content
    body = content[: match.start()]
    if match.end() != len(content) or match.group(1) != _digest(body):
        raise ValueError("its checksum does not match the content")
    return body + b"\n}"


def _has_damaged_checksum(content: bytes) -> bool:
    """Return whether a file ends with a damaged checksum, in which at most two fixed characters are wrong."""
    tail = content.removesuffix(b"\n")[-len(ENDING) :]
    return len(tail) == len(ENDING) and sum(a not in (b, WILDCARD) for a, b in zip(ENDING, tail, strict=True)) <= 2


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).hexdigest().encode()
