"""The Verdict's answer in words: the first change with its factor, all changes together, and the cause."""
