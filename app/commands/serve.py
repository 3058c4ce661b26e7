"""``sawtooth serve`` and ``sawtooth demo``: run the dashboard and manage its logins."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from sawtooth.app.commands.output import DataOption, say
from sawtooth.app.served_address import DEFAULT_ADDRESS, DEFAULT_PORT, ServedAddress, addresses
from sawtooth.app.server import start
from sawtooth.app.server.sessions import ListedSession, sessions_of
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.schema import DataFolder
from sawtooth.installation import default_data_folder

NoTokenOption = Annotated[
    bool, typer.Option("--no-token", help="No logins. Use it only if no other user can reach this machine.")
]


def serve(
    port: Annotated[int | None, typer.Option(help="Port.", show_default=str(DEFAULT_PORT))] = None,
    address: Annotated[str | None, typer.Option(help="Address to listen on.", show_default=DEFAULT_ADDRESS)] = None,
    data: DataOption = None,
    no_external: Annotated[
        bool, typer.Option("--no-external", help="Hide the only button that sends data to another machine (Open in Perfetto).")
    ] = False,
    mcp: Annotated[bool, typer.Option("--mcp", help="Answer agents too, at /mcp (needs sawtooth[mcp]).")] = False,
    token: Annotated[
        str | None,
        typer.Option(help="Token to log in with. Other users can see it in the list of processes; SAWTOOTH_TOKEN is safer."),
    ] = None,
    no_token: NoTokenOption = False,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate, to serve https.", exists=True, dir_okay=False)] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key.", exists=True, dir_okay=False)] = None,
    link: Annotated[bool, typer.Option("--link", help="Only print a new link that logs one browser in.")] = False,
    sessions: Annotated[bool, typer.Option("--sessions", help="Only list who is logged in.")] = False,
    end_session: Annotated[
        str | None, typer.Option(metavar="ID|all", help="Only log out one session of --sessions, or all of them.")
    ] = None,
) -> None:
    """Serve the dashboard."""
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("Only one of --tls-cert and --tls-key is given. Give both.")
    tls = (tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    if end_session is not None:
        _end(end_session, data)
    elif sessions:
        _list(_folder(data), token)
    elif link:
        _link(_folder(data), ServedAddress(address or "", port or 0, tls is not None))
    else:
        address, port = address or DEFAULT_ADDRESS, port if port is not None else DEFAULT_PORT
        if token:
            say("sawtooth: other users can read --token in the list of processes. They cannot read SAWTOOTH_TOKEN.", err=True)
        environment = start.environment_for(
            data=data, address=address, token=token, no_token=no_token, external=not no_external, mcp=mcp
        )
        start.serve(port=port, address=address, tls=tls, environment=environment)


def demo(
    port: Annotated[int | None, typer.Option(help="Port; by default the first free one from 8501 on.")] = None,
    data: DataOption = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")] = True,
    no_token: NoTokenOption = False,
) -> None:
    """Serve the dashboard with the bundled example and open it in the browser."""
    environment = start.environment_for(data=data, no_token=no_token, demo=True, open_browser=open_browser)
    chosen = start.first_free_port() if port is None else port
    if port is None and chosen != DEFAULT_PORT:
        say(f"Port {DEFAULT_PORT} is in use, perhaps by another Sawtooth. This server uses port {chosen}.", err=True)
    start.serve(port=chosen, environment=environment)


def _folder(data: Path | None) -> DataFolder:
    return DataFolder((data or default_data_folder()).expanduser().absolute()).create()


def _link(data: DataFolder, requested: ServedAddress) -> None:
    """Print a link to the running server of ``data``, or to the server that ``requested`` describes.

    In ``requested``, "" and 0 mean that the user did not give the option.
    """
    running = [
        addresse
        for addresse in addresses(data)
        if requested.port in (0, addresse.port)
        and requested.address in ("", addresse.address)
        and requested.secure <= addresse.secure
    ]
    if not running and requested == ServedAddress("", 0):
        say(f"sawtooth: no server is running for {data.root}. The link is for a server on port {DEFAULT_PORT}.", err=True)
    described = ServedAddress(requested.address or DEFAULT_ADDRESS, requested.port or DEFAULT_PORT, requested.secure)
    server = running[0] if running else described
    say(start.link_to(data, start.url_of(server.address, server.port, secure=server.secure)))


def _list(data: DataFolder, token: str | None) -> None:
    """List the logins; logins with an earlier token come last, because the server no longer accepts them."""
    current_token = start.token_of(data, token)
    sessions = sessions_of(data).all()
    expired = [listed for listed in sessions if not listed.session.accepted_with(current_token)]
    for listed in sessions:
        if listed not in expired:
            say("  ".join(row_of(listed)))
    if len(expired) == len(sessions):
        say("Nobody is logged in.")
    if expired:
        say("Logged in with an earlier token, so no longer admitted:")
    for listed in expired:
        say("  ".join(row_of(listed)))


def row_of(listed: ListedSession) -> tuple[str, ...]:
    """Return the columns of a session: id, last use, start, address and user, and browser."""
    from sawtooth.app import format as fmt  # A starting server does not need this module, which imports pandas.

    session = listed.session
    used, began = (time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s)) for time_s in (listed.seen, session.created))
    user = f"user {session.user}" if session.user is not None else ""
    client = " ".join(filter(None, (session.address, user)))
    return listed.id, f"used {used}", f"since {began} by {session.how}", fmt.clean(client), fmt.clean(session.agent)


def _end(session: str, data: Path | None) -> None:
    stored_sessions = sessions_of(_folder(data))
    ended = [listed.id for listed in stored_sessions.all() if session in (listed.id, "all") and stored_sessions.end(listed.id)]
    if not ended and session != "all":
        raise NotFoundError(f"There is no session {session[:40]!r}; `sawtooth serve --sessions` lists them.")
    say(f"Logged out: {len(ended)}.")
