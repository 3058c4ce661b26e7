"""Errors that users read: what was found, what was expected, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

LETTERS_SHOWN = 60  # A message shows at most this many characters of a refused file.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # The character that a decoder writes for invalid bytes.


@dataclass
class ImportDiagnostic:
    """One kind of problem during an import, which becomes a row of ``diagnostics``."""

    key: str
    severity: str  # One of info, data_loss and error.
    sentence: str
    count: int = 1
    example: str | None = None


class SawtoothError(Exception):
    """An error that the user can act on.

    ``str(error)`` is one or two sentences without a path of this server. If several files were read, ``file`` is the name of the affected
    file; the page and the command line show this name before the sentence. ``other_errors`` has a sentence for each further file that could not
    be read.
    """

    code = "error"
    file: str | None = None
    other_errors: tuple[str, ...] = ()


class SourceError(SawtoothError):
    """A source that cannot be read; ``code`` is a code of the contract, such as ``E-EMPTY`` or ``E-TYPE``.

    ``offset`` is the byte of the uncompressed source at which reading stopped, if known.
    """

    def __init__(self, code: str, sentence: str, *, offset: int | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.offset = offset


class NotFoundError(SawtoothError):
    """A run, recording or other object that is not in this data folder."""

    code = "not-found"


class UsageError(SawtoothError):
    """A request that is not valid, such as an unknown metric key."""

    code = "usage"


def disk_error(error: OSError) -> SourceError:
    """Return the error for a data folder that cannot be written."""
    return SourceError(
        "E-DISK", f"The data folder cannot be written ({error.strerror or 'unknown reason'}). Free some space and try again."
    )


def as_shown(content: bytes | str) -> str:
    """Return the beginning of foreign content in quotes, in a form that is safe in a sentence.

    Characters that are not printable are escaped. At most LETTERS_SHOWN characters are shown.
    """
    text = content if isinstance(content, str) else content[: 4 * LETTERS_SHOWN].decode(errors="backslashreplace")
    visible = "".join(_escape(letter) for letter in text[:LETTERS_SHOWN])
    return f"'{visible[:LETTERS_SHOWN]}'" + ("…" if len(visible) > LETTERS_SHOWN or len(text) > LETTERS_SHOWN else "")


def _escape(letter: str) -> str:
    if letter.isprintable() and letter != REPLACEMENT:
        return letter
    return letter.encode("unicode_escape").decode()
