"""Read traces into the tables of a recording.

Each format has a package of its own, which returns tables and facts. The modules of this folder make ids, nesting and links for
all formats, in bounded memory.
"""
