"""One HBM channel: queue, scheduler, bank timing, refresh, near-memory updates."""
