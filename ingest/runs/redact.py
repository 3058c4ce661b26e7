"""Remove host names, home folders, paths and secrets from a source, but keep what the analysis needs.

A path keeps its file name and line, or the part after ``site-packages/`` or ``lib/python3.x/``. The folders before are replaced by one short
name. The same folders have the same name everywhere in an export, so that two files called ``train.py`` stay distinct. Hosts become
``host-1``, ``host-2`` ….

Environments are removed completely. In a command line and anywhere else, values are removed if their name is token, key,
secret, password or user, or if they look like a key of a well-known service. A secret with neither a known name nor a known
form stays, because a trace may contain any names. A redacted source has other bytes, so its run has another id.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import re
import secrets
import zlib
from pathlib import Path
from typing import TypeVar

import msgspec

from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.runs.environments import without_environments
from sawtooth.ingest.typed import from_json

DATABASE = b"SQLite format 3\x00"
CHUNK_BYTES = 4 << 20
MAX_PIECE_BYTES = 64 << 10  # If a piece can be cut nowhere, this many bytes at its end are processed with the next piece.

# Values of keys that identify a machine, in all formats that Sawtooth reads. Kubernetes and DCGM use Hostname, Sawtooth's sessions host and boot.
_HOST_KEYS = rb'("(?:host_?name|host|node|boot|instance|kubernetes_node|exported_pod|pod)"\s*:\s*")((?:[^"\\]|\\.)+)(")'
HOST_VALUE = re.compile(_HOST_KEYS, re.IGNORECASE)
# Matches an absolute path after a quote, a space, "(" or "=". JSON doubles each backslash of a Windows path.
POSIX = re.compile(rb'(?<![\w./<>~-])~?/(?!/)((?:[^/"\\\s:,;()<>|*?\[\]{}]+/)+)(?=[^/"\\\s:,;()<>|*?\[\]{}])')
WINDOWS = re.compile(rb'[A-Za-z]:(?:\\\\|/)((?:[^/"\\:<>|*?]+(?:\\\\|/))+)')
HOME = re.compile(rb"(?<![\w.])/(?:home|Users)/[^/\"\\\s:,;()]+(?=[\"\s:,;()\\]|$)")
HOME_FOLDER = re.compile(rb'(?<![\w.])/(?:home|Users)/[^/"\\\n]{1,64}/')  # A user's name may contain a space.
REDACTED = re.compile(rb"redacted(?:-[0-9a-f]{6})?/")  # Our own replacement for folders. A second redaction must not change it.
LIBRARY = re.compile(rb"(?:site-packages|dist-packages|lib/python[\d.]+)/(.*)$", re.DOTALL)
_SECRET_KEYS = rb"(?:[\w-]{0,64}(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|passw(?:or)?d|credential)[\w-]{0,64}|[\w-]{0,64}[_-]token|token|user(?:[_-]?name)?|logname)"
# A value in quotes ends with the closing quote: in JSON inside a JSON text (\"), in JSON, or in Python's and the shell's
# notation (').
_QUOTE = rb"""(?:(?P<inner>\\")|(?P<json>")|(?P<single>'))"""
_TO_QUOTE = rb"""(?!\d+\\?["'])(?(inner)(?:\\{4}|\\{3}"|\\[^"]|[^"\\])+|(?(json)(?:\\.|[^"\\])+|(?:\\[^"]|[^'"\\])+))"""
# Matches a complete argument or variable, such as `"--api-key=X"` or `"API_KEY=X"`.
QUOTED_ARGUMENT = re.compile(
    rb"(?P<kept>%b(?=[\w-]{1,200}=)(?:--)?%b=)%b" % (_QUOTE, _SECRET_KEYS, _TO_QUOTE), re.IGNORECASE | re.DOTALL
)
# `"api_key": "X"`, `"--api-key", "X"`, `--api-key X`, `API_KEY=X`. Numbers stay, because they are counts, such as `max_token=128`.
NAMED_SECRET = re.compile(
    rb"""(?P<kept>(?<![\w-])(?P<flag>--)?%b(?:\\?["']\s*(?::|(?(flag),(?!\s*\\?["']--)|(?!)))\s*(?=\\?["'])|=|(?(flag)\s+|(?!)))%b?)"""
    rb"""(?(inner)%b|(?(json)%b|(?(single)%b|(?!\d+(?![\w-]))(?:\\\\|,(?=[^\s"'\\])|[^\s"'\\,;&}]){3,})))"""
    % (_SECRET_KEYS, _QUOTE, _TO_QUOTE, _TO_QUOTE, _TO_QUOTE),
    re.IGNORECASE | re.DOTALL,
)
FLAG_AT_END = re.compile(rb"""--%b\\?["']?\s*,?\s*\Z""" % _SECRET_KEYS, re.IGNORECASE)
FLAG_BYTES = 256  # No match of FLAG_AT_END is longer.
KNOWN_SECRET = re.compile(
    rb"(?<![\w-])(?:sk-[\w-]{8,}|hf_\w{8,}|gh[pousr]_\w{16,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{12,}|xox[abp]-[\w-]{8,}|eyJ[\w-]{10,}(?:\.[\w-]+){1,2})"
)
REDACTED_TEXT = "redacted"
T = TypeVar("T")
CHECKSUM = re.compile(rb',"crc":"[0-9a-f]{8}"\}\s*$')


class Redactor:
    """The replacements of one export.

    A name is replaced by one word in all sources of the export, and by another word in other exports.
    """

    def __init__(self, hosts: list[str] | None = None, salt: bytes | None = None) -> None:
        self._salt = salt or secrets.token_bytes(16)
        self._hosts: dict[bytes, bytes] = {}
        for host in hosts or []:
            self._host(host.encode())

    def text(self, text: str) -> str:
        """Return a user's text without hosts, paths, environments and secrets."""
        return self._as_written(self._json(text, str, REDACTED_TEXT))

    def words(self, command: list[str]) -> list[str]:
        """Redact the words of a command like ``text``.

        All words are redacted together, because a flag's value is in the next word.
        """
        return [self._as_written(word) for word in self._json(command, list[str], [REDACTED_TEXT])]

    def settings(self, settings: dict[str, str]) -> dict[str, str]:
        """Redact settings like ``text``.

        Keys and values are redacted together, because a key shows whether its value is a secret.
        """
        cleaned = self._json(settings, dict[str, str], {})
        return {self._as_written(key): self._as_written(value) for key, value in cleaned.items()}

    def _json(self, content: T, kind: type[T], unknown: T) -> T:
        """Redact content as JSON, the notation in which environments, flags and Windows paths are recognized.

        If the redacted text is not valid JSON, ``unknown`` is returned. This happens if the content ends with the name of a secret, because
        the quote that closes the JSON text then looks like the quote before the secret's value, and is replaced.
        """
        cleaned = self._plain(b"".join(without_environments([msgspec.json.encode(content)])))
        try:
            return from_json(cleaned, kind)
        except msgspec.MsgspecError:
            return unknown

    def _as_written(self, text: str) -> str:
        r"""Redact a text in its plain form, because some names are not recognized in its JSON form.

        In JSON, the letter of an escape such as ``\n`` comes directly before the first word of a line, so that word is not recognized.
        """
        return self._plain(text.encode()).decode(errors="replace")

    def host(self, name: str | None) -> str | None:
        """Return the replacement for a host."""
        return None if name is None else self._host(name.encode()).decode()

    def line(self, line: bytes) -> bytes:
        """Return a line of a source without hosts and paths, with a new checksum if the line has one."""
        if (checksum := CHECKSUM.search(line)) is None:
            return self._plain(line)
        body = line[: checksum.start()]
        if int(line[checksum.start() + 8 : checksum.start() + 16], 16) != zlib.crc32(body):
            return b"\n"  # A damaged line is removed. Every reader skips it, and its content is unknown.
        new = self._plain(body)
        return b'%s,"crc":"%08x"}\n' % (new, zlib.crc32(new))

    def source(self, source: Path, target: Path) -> None:
        """Write ``source`` (gzipped or not) to ``target``, gzipped, without hosts and paths.

        Raises UsageError for a database.
        """
        with source.open("rb") as file:
            gzipped = file.read(2) == b"\x1f\x8b"
        with gzip.open(source) if gzipped else source.open("rb") as original, gzip.open(target, "wb", compresslevel=6) as out:
            # Replaced bytes would damage a database, and its environment variables would stay.
            if original.read(len(DATABASE)) == DATABASE:
                raise UsageError(
                    "An Nsight Systems export cannot be redacted, because it contains the environment and the command line of the job. "
                    "Export the run without --redact, or record it with torch.profiler."
                )
            original.seek(0)
            rest = b""
            for piece in without_environments(iter(lambda: original.read(CHUNK_BYTES), b"")):
                rest += piece
                if len(rest) > CHUNK_BYTES:
                    cut = _cut(rest)
                    out.write(self._lines(rest[:cut]))
                    rest = rest[cut:]
            out.write(self._lines(rest))

    def _lines(self, text: bytes) -> bytes:
        if b',"crc":"' not in text:
            return self._plain(text)
        return b"".join(self.line(line) for line in text.splitlines(keepends=True))

    def _plain(self, text: bytes) -> bytes:
        text = NAMED_SECRET.sub(rb"\g<kept>redacted", QUOTED_ARGUMENT.sub(rb"\g<kept>redacted", text))
        text = KNOWN_SECRET.sub(b"redacted", text)
        text = HOST_VALUE.sub(lambda m: m[1] + self._host(m[2]) + m[3], text)
        for name, word in self._hosts.items():
            if len(name) > 3:  # A short host name, such as "gpu", would change other words.
                text = re.sub(rb"(?<![\w-])" + re.escape(name) + rb"(?![\w-])", word, text)
        text = HOME.sub(b"/redacted", HOME_FOLDER.sub(b"/home/", WINDOWS.sub(self._folder, text)))
        return POSIX.sub(self._folder, text)

    def _host(self, name: bytes) -> bytes:
        if name in self._hosts.values():
            return name
        return self._hosts.setdefault(name, b"host-%d" % (len(self._hosts) + 1))

    def _folder(self, match: re.Match[bytes]) -> bytes:
        folders = match[1].replace(b"\\\\", b"/")
        if REDACTED.fullmatch(folders):
            return match[0]
        if library := LIBRARY.search(folders):
            return b"/redacted/" + folders[library.start() :]
        return b"/redacted-%s/" % hmac.new(self._salt, folders, hashlib.sha256).hexdigest()[:6].encode()


def _cut(text: bytes) -> int:
    """Return a position at which a cut splits no name and does not separate a flag from its value.

    The position is after a line, or else at a quote or comma, or else MAX_PIECE_BYTES before the end.
    """
    end = len(text)
    while cut := _border(text, end):
        if FLAG_AT_END.search(text, max(0, cut - FLAG_BYTES), cut) is None:
            return cut
        end = cut - 1
    return max(len(text) - MAX_PIECE_BYTES, 0)


def _border(text: bytes, end: int) -> int:
    """Return the last position before ``end`` where no name continues; 0 without one."""
    cut = text.rfind(b"\n", 0, end) + 1
    if cut == 0 or len(text) - cut > CHUNK_BYTES:
        cut = max(text.rfind(b'",', 0, end), text.rfind(b"},", 0, end)) + 1
    return cut
