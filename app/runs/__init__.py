"""The list of runs: the content of cards, search, order and groups; and baselines of builds."""
