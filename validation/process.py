"""What this process has cost so far. It stands in the log and in --json, never in an archive."""

import sys
from time import perf_counter

from tracer.jit import compile_seconds

try:
    import resource
except ImportError:  # Windows has no such account
    resource = None  # type: ignore[assignment]

_BEGAN_S = perf_counter()


def process_costs() -> dict[str, float | int | None]:
    """wall_s since the verb was loaded, compile_s of it, peak_rss_bytes (None where the system does not say)."""
    return {"wall_s": perf_counter() - _BEGAN_S, "compile_s": compile_seconds(), "peak_rss_bytes": _peak_rss_bytes()}


def _peak_rss_bytes() -> int | None:
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB
