"""What leaves a page: links, a poster and slides."""
