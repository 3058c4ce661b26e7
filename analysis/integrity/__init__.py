"""Checks of whether a recording is whole and possible, and what a failed check takes away: a module for each kind of check."""
