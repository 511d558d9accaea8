"""Version of t3sim: of the distribution, and the producer named in every archive."""

VERSION = "0.1.0"
