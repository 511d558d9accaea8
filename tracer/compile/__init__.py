"""The one decorator of compiled functions, its cache, and the hash of the code."""
