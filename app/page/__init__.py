"""Parts that all screens share: the frame, the current run, cards, panels and findings."""
