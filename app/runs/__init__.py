"""The list of runs: the content of cards, searching and ordering."""
