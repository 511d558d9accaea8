"""Verbs of the command line that need no machine."""
