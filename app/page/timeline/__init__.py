"""The timeline on its page: the picture, where in it the reader is, notes about places, and the way to Perfetto."""
