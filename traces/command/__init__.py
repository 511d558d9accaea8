"""The command line: it finds verbs and prints their output."""
