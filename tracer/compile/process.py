"""Costs of this process so far. They are in the log and in --json, never in an archive."""

import os
import platform
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from tracer.compile.jit import compile_seconds
from tracer.compile.shipped import is_shipped

try:
    import resource
except ImportError:  # not available on Windows
    resource = None  # type: ignore[assignment]

_BEGAN_S = perf_counter()


def process_costs() -> dict[str, float | int | None]:
    """wall_s since the verb was loaded, compile_s (part of it), peak_rss_bytes (None if it is unknown)."""
    return {"wall_s": perf_counter() - _BEGAN_S, "compile_s": compile_seconds(), "peak_rss_bytes": _peak_rss_bytes()}


def cpu_s() -> float:
    """CPU time in seconds of this process and of its ended child processes (xz, if a trace needs it)."""
    if resource is None:
        return process_time()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


def machine_text() -> str:
    """Processor, cores, system and Python version of this computer."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass  # not Linux
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def is_compiled(function: Any) -> bool | None:
    """Is there machine code of a compiled function, in the cache or with the installation?

    None = it runs as plain Python (NUMBA_DISABLE_JIT).
    """
    cache = getattr(function, "_cache", None)
    return None if cache is None else any(Path(cache.cache_path).glob("*.kernel")) or is_shipped(cache.folder)


def _peak_rss_bytes() -> int | None:
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB
