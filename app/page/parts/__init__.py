"""Parts of pages that a few screens show: findings, strips, drawers, curves and selectable tables."""
