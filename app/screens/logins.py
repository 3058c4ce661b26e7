"""The Logins screen: who has access, how to invite another browser, and how to log one out."""

from __future__ import annotations

import time
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import streamlit as st

from sawtooth.app import format as fmt
from sawtooth.app.page import cards, panel
from sawtooth.app.server.login import LINK, TOKEN, session_cookie_of
from sawtooth.app.server.sessions import ListedSession, Sessions, sessions_of
from sawtooth.app.server.start import link_to
from sawtooth.app.settings import is_loopback, settings

# Words in the User-Agent header, and the browsers they stand for. The first match counts, because the headers of Edge and Opera
# also contain Chrome, and that of Chrome also contains Safari. Phones use other words: EdgA and EdgiOS, FxiOS, CriOS.
BROWSERS = {
    "Edg/": "Edge", "EdgA/": "Edge", "EdgiOS/": "Edge", "OPR/": "Opera", "OPT/": "Opera", "Firefox/": "Firefox", "FxiOS/": "Firefox",
    "Chrome/": "Chrome", "CriOS/": "Chrome", "Safari/": "Safari",
}  # fmt: skip
SYSTEMS = {
    "Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "Windows": "Windows", "Mac OS": "macOS", "Linux": "Linux",
}  # fmt: skip
WAYS = (
    ("A login", "sees and changes all runs; ends after 30 days without use"),
    ("A link", "logs in one browser; works once, for one day"),
    ("The server's token", "logs in browsers, and scripts that send `Authorization: Bearer TOKEN`"),
    ("The push token", "lets samplers send live samples, and nothing else"),
)
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def main() -> None:
    """Show the page."""
    token = settings().token
    if token is None:
        cards.headline(
            "Everybody who reaches this server has access.",
            "The server was started with --no-token, so nobody needs to log in. Start it without that option to invite people one by one.",
        )
        return
    sessions = sessions_of(settings().data)
    own_id = sessions.id_of(st.context.cookies.get(session_cookie_of(token), ""))
    logged_in = [listed for listed in sessions.all() if listed.session.accepted_with(token)]
    cards.headline(
        f"{fmt.many(len(logged_in), 'browser')} {'has' if len(logged_in) == 1 else 'have'} access to this dashboard",
        "Everybody who has access sees and changes all runs. There are no roles.",
    )
    first, second = panel.two_columns()
    with first:
        cards.title("Browsers that are logged in")
        for listed in logged_in:
            _login(listed, sessions, own=listed.id == own_id)
        other_logins = [listed.id for listed in logged_in if listed.id != own_id]
        if len(other_logins) > 1 and st.button(f"Log out the other {len(other_logins)} browsers"):
            for other in other_logins:
                sessions.end(other)
            st.rerun()
        cards.small("Logging out a browser ends its access at once, also on open pages.")
    with second:
        _invite()
    cards.title("Kinds of access")
    cards.table(("With", "What it allows"), WAYS, "The kinds of access to this server")


def _invite() -> None:
    cards.title("Invite somebody")
    cards.small("Send a link to one person. It logs in the first browser that opens it, within a day.")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        target = st.text_input(
            "Page that the link opens", placeholder="address of a page; if empty, Runs", max_chars=2000, width=340
        )
        is_clicked = st.button("Make a link", icon=":material/add_link:", type="primary")
    if not is_clicked:
        return
    parts = urlsplit(st.context.url or "http://localhost:8501/")
    st.code(link_to(settings().data, f"{parts.scheme}://{parts.netloc}{_page_of(target)}"), language=None, wrap_lines=True)
    if is_loopback(parts.hostname or ""):
        cards.small(
            "This link works on this machine only. To invite others, start the server with `sawtooth serve --address 0.0.0.0`, "
            "and open this page under the machine's name."
        )


def _page_of(address: str) -> str:
    """Return the path and query of a full or partial address of this server.

    Parameters that log somebody in are removed, so that the invited person does not get the viewer's own login.
    """
    parts = urlsplit(address.strip())
    query = urlencode([pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in (LINK, TOKEN)])
    path = f"/{quote(parts.path.strip('/'))}"
    return f"{path}?{query}" if query else path


def _login(listed: ListedSession, sessions: Sessions, *, own: bool) -> None:
    session = listed.session
    user = f" (user id {session.user})" if session.user is not None else ""
    with st.container(horizontal=True, vertical_alignment="center", border=True):
        with st.container(gap=None):
            cards.show_bold(f"{browser_of(listed)}{' (this browser)' if own else ''}")
            cards.small(
                f"Used {_time_since(time.time() - listed.seen)}{f', from {session.address}' if session.address else ''}{user}. "
                f"Logged in with {'a link' if session.how == 'link' else 'the token'} on {time.strftime('%d %B, %H:%M UTC', time.gmtime(session.created))}."
            )
        if st.button("Log out", key=f"end-{listed.id}"):
            sessions.end(listed.id)
            st.rerun()


def browser_of(listed: ListedSession) -> str:
    """Return the browser of a login in words, such as ``Firefox on Linux``."""
    agent = listed.session.agent
    browser = next((name for sign, name in BROWSERS.items() if sign in agent), agent.split("/")[0].strip()[:40])
    system = next((name for sign, name in SYSTEMS.items() if sign in agent), None)
    return f"{browser or 'A browser without a name'}{f' on {system}' if system else ''}"


def _time_since(seconds: float) -> str:
    if seconds < 6 * MINUTE:  # Sessions store their last use only every five minutes.
        return "in the last minutes"
    unit, name = next(
        (unit_and_name for unit_and_name in ((DAY, "day"), (HOUR, "hour")) if seconds >= unit_and_name[0]), (MINUTE, "minute")
    )
    return f"{fmt.many(int(seconds / unit), name)} ago"


main()
