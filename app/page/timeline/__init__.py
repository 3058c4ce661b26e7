"""The timeline on its page: the picture, the visible range, notes, and the link to Perfetto."""
