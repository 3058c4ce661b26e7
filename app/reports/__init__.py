"""What leaves the app as a file: HTML, Markdown and text of a run or a comparison."""
