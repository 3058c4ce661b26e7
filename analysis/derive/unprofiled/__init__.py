"""The recorded run as a problem for the replay, and what it takes without the cost of recording."""
