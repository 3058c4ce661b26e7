"""Read traces into the tables of a recording.

Each format is a source with a package of its own, which returns tables and facts. Ids, nesting and links are made here for all
formats, in bounded memory.
"""
