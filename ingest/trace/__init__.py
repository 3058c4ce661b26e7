"""Traces to the tables of a recording. Each format is a source with a room of its own, which gives tables and facts; ids, nesting and links
are made here for all of them, in bounded memory."""
