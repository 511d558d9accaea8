"""Version of t3sim, for the distribution and for the writer named in every archive."""

VERSION = "0.1.0"
