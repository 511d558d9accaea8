"""Verbs of the command line that simulate no machine."""
