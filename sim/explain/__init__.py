"""Guided analysis of a result: what bounds it, what would help, and on which assumed values it hangs."""
