"""Ways to share a page: links, a poster and slides."""
