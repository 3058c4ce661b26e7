"""The answer of the Verdict in words: the first change, all changes together, and the cause."""
