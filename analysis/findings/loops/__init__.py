"""Kinds of loops that a recording shows, and code and edits for them."""
