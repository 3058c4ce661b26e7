"""The SQL screen: read-only queries on a recording, limited in time, rows and memory."""

from __future__ import annotations

import re

import pandas as pd
import streamlit as st

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.view import causes_of
from sawtooth.analysis.store.rank_causes import RankCauses
from sawtooth.analysis.store.sql import MAX_ROWS, MAX_SECONDS, MAX_SQL_CHARACTERS, QueryResult, run_query
from sawtooth.analysis.store.sql_examples import EXAMPLES
from sawtooth.app import format as fmt
from sawtooth.app.charts import rankings
from sawtooth.app.page import cards, current_result, frame, panel
from sawtooth.app.page.reference import columns
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import RecordingRef

# Longest query that is written into the address: mail programs and proxies cut longer addresses.
LINK_CHARACTERS = 2_000
# A long text is shortened, so that the columns after it are visible. Texts share the width that the other columns leave.
ANSWER_PX, COLUMN_PX, CHARACTER_PX = 780, 90, 7.5  # The answer's width at 1440 pixels, a usual column, a character.
SHORTEST, LONGEST = 30, 60  # Characters to which a long text is shortened.
ON_A_PHONE = 12  # Rows that a phone shows.
CACHED_RESULTS = 12  # Cached answers, a few MB each, so that sorting and reloading do not run a query again.


def main() -> None:
    """Show the page."""
    manifest = frame.current_run()
    result = current_result.run_result(manifest)  # This call creates the tables of the derived file.
    tables = {column.table for column in columns()}
    cards.headline(
        f"Query the {len(tables)} tables of this run",
        f"Queries only read. They take at most {MAX_SECONDS:g} s and return the first {MAX_ROWS:,} rows.",
    )
    with st.container(key="sql_console"), st.grid(min_column_width=520, gap="medium"):
        with st.container():
            chosen = _recording(list(dict.fromkeys([*manifest.traces, *manifest.telemetry])))
            _take_from_address()
            _begin_with_an_example(chosen)
            _form(chosen)
            query = str(st.session_state.get("sql_to_run") or "").strip()
            _answer(chosen, query, result)
        with st.container(key="sql_tables"):
            _tables(query)


def _answer(chosen: RecordingRef, query: str, result: RunResult) -> None:
    """Show the answer to the query, or why there is none yet."""
    if not query and st.session_state.get("sql_text"):
        cards.empty_state("This query came with the link and has not been run.", "Read it, then press Run.")
        return
    if not query:
        cards.empty_state("No query yet.", "Start from one of the questions above, or write a query of your own.")
        return
    if query != st.session_state.get("sql_begun") or "sql" in st.query_params:
        _remember_in_address(query)
    _show(chosen, query, causes_of([rank for rank in result.ranks if rank.recording_id == chosen.id]))


def _recording(recordings: list[RecordingRef]) -> RecordingRef:
    """Return the recording to query: the run's only one, or the viewer's choice."""
    if len(recordings) == 1:
        return recordings[0]
    by_id = {ref.id: ref for ref in recordings}
    return by_id[
        st.selectbox("Recording", list(by_id), format_func=lambda id_: _label(by_id[id_]), key="recording", bind="query-params")
    ]


def _label(ref: RecordingRef) -> str:
    rank = f"rank {ref.rank} · " if ref.rank is not None else ""
    return f"{ref.kind} · {rank}{fmt.clean(ref.source_name, 60)}"


def _take_from_address() -> None:
    """Take the query from the address if a link opened the page."""
    linked = st.query_params.get("sql")
    if linked is not None and linked != st.session_state.get("sql_linked"):
        st.session_state["sql_linked"] = linked
        st.session_state["sql_text"] = linked[:MAX_SQL_CHARACTERS]
        st.session_state.pop("sql_to_run", None)  # A query of another person must not run before the viewer has read it.


def _begin_with_an_example(chosen: RecordingRef) -> None:
    """Run the first example query if there is no query yet, because an answer explains more than words."""
    if "sql_text" in st.session_state:
        return
    example = next((example for example in EXAMPLES if example.kind == chosen.kind), None)
    if example is not None:
        st.session_state["sql_example"] = example.title
        st.session_state["sql_text"] = st.session_state["sql_to_run"] = example.sql
        # The viewer has not written this query, so it is not put into the address.
        st.session_state["sql_begun"] = example.sql.strip()


def _remember_in_address(query: str) -> None:
    if len(query) <= LINK_CHARACTERS:
        st.query_params["sql"] = st.session_state["sql_linked"] = query
    else:
        st.query_params.pop("sql", None)
        cards.small(f"This query is longer than {LINK_CHARACTERS:,} characters, so it is not part of this page's address.")


def _form(chosen: RecordingRef) -> None:
    titles = [example.title for example in EXAMPLES if example.kind == chosen.kind]
    st.pills("Start from", titles, key="sql_example", on_change=_take_example)
    with st.form("sql_form", border=False):
        st.text_area("Query", key="sql_text", height="content", max_chars=MAX_SQL_CHARACTERS, placeholder="SELECT …")
        st.form_submit_button("Run", icon=":material/play_arrow:", type="primary", help="Ctrl+Enter", on_click=_run)


def _run() -> None:
    st.session_state["sql_to_run"] = st.session_state.get("sql_text")


def _take_example() -> None:
    title = st.session_state.get("sql_example")
    for example in EXAMPLES:
        if example.title == title:
            st.session_state["sql_text"] = st.session_state["sql_to_run"] = example.sql


def _tables(query: str) -> None:
    """Show all tables with their columns; those that the query reads come first and are open."""
    by_name: dict[str, list[tuple[str, str, str]]] = {}
    for column in columns():
        by_name.setdefault(column.table, []).append((column.column, column.type.lower(), column.comment))
    read = set(re.findall(r"\w+", query)) & set(by_name)
    cards.title("Tables and columns")
    cards.small("Times are integer nanoseconds. Texts are in the table names.")
    cards.tables([(name, by_name[name], name in read) for name in sorted(by_name, key=lambda name: (name not in read, name))])


@st.cache_data(
    max_entries=CACHED_RESULTS, show_spinner="Running the query …", hash_funcs={RankCauses: lambda causes: causes.key}
)
def answer(root: str, recording_id: str, causes: RankCauses | None, query: str) -> QueryResult:
    """Return the answer to a query, cached for other viewers and reloads."""
    return run_query(frame.data_folder(), recording_id, query, causes=causes)


def _is_long(values: pd.Series) -> bool:
    """Return whether a column has texts that are so long that they would hide the columns after it."""
    return not pd.api.types.is_numeric_dtype(values) and bool((values.astype(str).str.len() > SHORTEST).any())


def text_length(columns: int, long: int) -> int:
    """Return the length to which the ``long`` long texts of an answer with ``columns`` columns are cut."""
    room = (ANSWER_PX - COLUMN_PX * (columns - long)) / max(long, 1)
    return int(min(max(room / CHARACTER_PX, SHORTEST), LONGEST))


def _short_texts(values: pd.Series, length: int) -> list[object]:
    """Return texts that fit into a cell, such as readable names of kernels that stay distinct."""
    short = rankings.distinct_names([str(value) for value in values.dropna().unique()], length)
    of = dict(zip(map(str, values.dropna().unique()), short, strict=True))
    return [of.get(str(value), value) for value in values]


def _phone_rows(rows: pd.DataFrame) -> list[cards.NarrowRow]:
    """Return the first rows for a phone: the first column, and below it the others with their names."""
    made = []
    for row in rows.head(ON_A_PHONE).astype(object).itertuples(index=False):
        texts = ["NULL" if pd.api.types.is_scalar(value) and pd.isna(value) else str(value) for value in row]
        below = " · ".join(f"{column}\u00a0{text}" for column, text in zip(rows.columns[1:], texts[1:], strict=True))
        made.append(cards.NarrowRow(texts[0], "", False, below, "0%", "", ""))
    return made


def _show(chosen: RecordingRef, query: str, causes: RankCauses | None) -> None:
    try:
        result = answer(str(frame.data_folder().root), chosen.id, causes, query)
    except SawtoothError as error:
        message, marked, place = str(error).partition("LINE ")  # After "LINE", DuckDB repeats the query and marks the place.
        cards.problem(
            "This query failed",
            f"{message.strip()} {f'It is in line {place.partition(chr(58))[0]}.' if marked else ''}".strip(),
        )
        return
    rows = result.rows
    row_count = f"{len(rows):,} row{'s' if len(rows) != 1 else ''}"
    long = [c for c in rows if _is_long(rows[c])]
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        cards.title(
            f"The first {row_count} of more" if result.more else row_count if len(rows) else "The query returned no rows"
        )
        complete = bool(long) and st.toggle("Complete texts", key="sql_complete")
    length = text_length(len(rows.columns), len(long))
    shown = rows if complete else rows.assign(**{c: _short_texts(rows[c], length) for c in long})
    with st.container(key="sql_narrow"):
        cards.narrow_rows(_phone_rows(shown), "The first rows of the result")
        if len(rows) > ON_A_PHONE:
            cards.small(f"The first {ON_A_PHONE} rows; the CSV has all.")
    with st.container(key="sql_table"):
        st.dataframe(
            shown,
            hide_index=True,
            key="sql_answer",
            column_config={} if complete else {c: st.column_config.Column(width=int(length * CHARACTER_PX)) for c in long},
            height="auto" if len(rows) <= 14 else panel.TALL_TABLE_PX,
            placeholder="NULL",
            alt="The result as a table.",
        )
    panel.csv_button(rows, f"{chosen.id}-query", "sql_answer")


main()
