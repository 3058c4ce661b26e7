"""The recorded run as a replay problem, and its step time without the cost of recording."""
