"""Sentences that carry numbers: the same words on the page, in reports and in the terminal."""
