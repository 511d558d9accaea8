"""Verbs of the command line that make and convert traces."""
