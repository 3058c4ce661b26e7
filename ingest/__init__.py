"""The layer of facts: it reads files and writes recordings. It imports nothing from analysis or app."""
