"""What a recording says that rules and pages share: the work of its steps, who launched it, and the lines of code behind it."""
