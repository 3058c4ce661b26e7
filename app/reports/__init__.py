"""Reports of a run or a comparison as files: HTML, Markdown and text."""
