"""What somebody changed between two runs, as their recordings show it, what of the gain each change explains, and what was predicted of it."""
