"""The whole machine without a compiler, as a program of its own.

    python -m tests.support.plain_machine SEED ...

prints what `outcome` finds for the random kernel of each seed, as JSON.
"""

import json
import os
import sys
import warnings

if __name__ == "__main__":
    os.environ["NUMBA_DISABLE_JIT"] = "1"

import numpy as np

import sim.host.gpu
import tracer.workgroup_check
from sim.run.one_gpu import simulate
from tests.support.plain_records import PlainArray
from tests.support.programs import SMALL, TIGHT, random_cluster_kernel, random_kernel, small_preset
from tracer.sequence import CommandSequence


def without_compiler():
    """Let the engine see its node through plain views."""
    warnings.simplefilter("ignore", RuntimeWarning)  # 64-bit products of hashes wrap
    for name in ("run_engine", "close_interval", "settle", "prefill_l2", "rest_ps"):
        setattr(sim.host.gpu, name, _through_views(getattr(sim.host.gpu, name)))
    for name in ("structure_fault", "event_fault"):
        setattr(tracer.workgroup_check, name, _on_plain_arrays(getattr(tracer.workgroup_check, name)))


def _through_views(function):
    return lambda node, *rest: function(_plain(node), *rest)


def _on_plain_arrays(function):
    return lambda *given: function(*(PlainArray(one) if isinstance(one, np.ndarray) else one for one in given))


def _plain(part):
    """A tuple of arrays, and of such tuples, as views."""
    return type(part)(*(_plain(one) if isinstance(one, tuple) else PlainArray(one) for one in part))


CLUSTERS = (
    *("cu.groups=1", "cu.peer_latency_clk=13", "cu.peer_bytes_per_clk=9"),
    *("cu.bulk_lines_per_clk=0.7", "cu.bulk_latency_clk=11"),
)


def outcome(seed):
    """All counters and times of a random kernel, run twice in a row on a roomy and on a tight machine; with clusters
    of workgroups too."""
    found = {}
    alone, together = random_kernel(seed, workgroups=4, events=3), random_cluster_kernel(seed, clusters=1, rounds=2)
    for name, size, one in (("small", SMALL, alone), ("tight", TIGHT, alone), ("clusters", TIGHT, together)):
        more = CLUSTERS if name == "clusters" else ()
        results = simulate(CommandSequence([one, one]), small_preset("dispatch.jitter_ps=5000", *more, size=size))
        found[name] = [[r.start_ps, r.end_ps, dict(sorted(r.totals.items()))] for r in results.kernels]
    return found


if __name__ == "__main__":
    without_compiler()
    json.dump([outcome(int(seed)) for seed in sys.argv[1:]], sys.stdout)
