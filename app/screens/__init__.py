"""The screens, one file each: they select data, call the analysis, and pass it to charts and cards."""
