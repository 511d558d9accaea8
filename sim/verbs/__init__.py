"""Verbs of the command line that simulate and show results."""
