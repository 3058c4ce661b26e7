"""A growing session on its page."""
