"""What every screen is made of: the frame, the current run, cards, panels, findings, and the run chosen for a comparison."""
