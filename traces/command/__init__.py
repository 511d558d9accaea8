"""The command line: how verbs are found, and how they print."""
