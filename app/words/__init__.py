"""Sentences with numbers, shared by the page, the reports and the terminal."""
