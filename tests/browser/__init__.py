"""The app in a real browser."""
