"""A checksum inside a JSON file: a bit that flips in a number leaves JSON that reads as well, and says something else.

The seal is the last entry of the object: ``"seal": "…"``, over all bytes before it. A file without one, written by hand or by an older
version, opens as it is; whoever edits a sealed file removes the line.
"""

from __future__ import annotations

import hashlib
import re

DIGEST_BYTES = 8  # one flip in 2^64 fits by chance
ANY = ord("?")
ENDING = b',\n  "seal": "????????????????"\n}'  # ? stands for a digit
SEAL = re.compile(rb',\n  "seal": "([0-9a-f]{16})"\n}\n?')


def sealed(content: bytes) -> bytes:
    """Return an indented JSON object with its seal. Raises ValueError where ``content`` is no such object, or an empty one."""
    body, end = content[:-2], content[-2:]
    if end != b"\n}" or not body.rstrip(b"{"):
        raise ValueError("only an indented JSON object can be sealed")
    return b'%s,\n  "seal": "%s"\n}' % (body, _digest(body))


def unsealed(content: bytes) -> bytes:
    """Return the object without its seal, as it is where it has none. Raises ValueError where a byte is not what was sealed."""
    seal = SEAL.search(content)
    if seal is None:
        if _nearly_sealed(content):
            raise ValueError("its checksum is damaged")
        return content
    body = content[: seal.start()]
    if seal.end() != len(content) or seal.group(1) != _digest(body):
        raise ValueError("its checksum does not fit")
    return body + b"\n}"


def _nearly_sealed(content: bytes) -> bool:
    """Tell whether a file ends as a sealed one does but for a sign or two: then its seal is what was damaged."""
    tail = content.removesuffix(b"\n")[-len(ENDING) :]
    return len(tail) == len(ENDING) and sum(a not in (b, ANY) for a, b in zip(ENDING, tail, strict=True)) <= 2


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).hexdigest().encode()
