"""The decorator of compiled functions, their cache on disk, and the fingerprint of their code."""
