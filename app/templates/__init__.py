"""The HTML of the app as Jinja2 templates: parts of pages, reports, and the server's own pages.

Traces contain untrusted names. One environment escapes every value and removes control and direction characters, so that no
caller can forget it. A missing value of a template is an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sawtooth.app import format as fmt
from sawtooth.app.printable import printable
from sawtooth.app.theme import ink_on

FOLDER = Path(__file__).parent
_QUOTED_CODE = re.compile(r"`([^`]+)`")


def _printable(value: Any) -> Any:
    """Return what a template prints: text without control characters, and markup unchanged."""
    return fmt.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _prose(sentence: str) -> Markup:
    """Return an escaped sentence in which code in backticks is shown as code."""
    escaped = str(Markup.escape(fmt.spaced(fmt.clean(sentence))))  # A Markup object would escape the inserted tags.
    return Markup(_QUOTED_CODE.sub(r"<code>\1</code>", escaped))


def _as_written(text: str) -> Markup:
    """Return escaped code with its line breaks but without other control characters, for copying."""
    return Markup.escape(printable(text, allowed="\n\t"))


def _breakable(text: str) -> Markup:
    """Return escaped text whose names may wrap after an underscore, with code in backticks as code.

    ``<wbr>`` is not a character, so copied names are unchanged.
    """
    escaped = str(Markup("_<wbr>").join(Markup.escape(part) for part in fmt.spaced(fmt.clean(text)).split("_")))
    return Markup(_QUOTED_CODE.sub(r"<code>\1</code>", escaped))


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_printable,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_ENVIRONMENT.filters |= {
    "prose": _prose,
    "as_written": _as_written,
    "breakable": _breakable,
    "cut": fmt.clean,
    "ink": ink_on,
}


def render(name: str, /, **values: Any) -> Markup:
    """Return template ``name`` (a file of this folder) with ``values``."""
    return Markup(_ENVIRONMENT.get_template(name).render(values))


def pieces(name: str) -> Any:
    """Return template ``name`` as an object whose methods are its macros; each returns Markup."""
    return _ENVIRONMENT.get_template(name).module
