"""A sub-layer in several configurations, put together from runs."""
