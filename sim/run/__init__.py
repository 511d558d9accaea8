"""One simulation and what it finds."""
