"""Parts of the page that one screen or a few show: findings, strips, drawers, curves, and tables whose rows can be chosen."""
