"""The spread of the workgroups of a GEMM in K-steps, sampled while the kernel is replayed.

The progress of a workgroup is the number of K-steps whose arithmetic its warps have issued: the mean over its warps,
counted over all of its tiles. The spread of a sample is the difference between the first and the last workgroup that
still runs.
"""

from typing import NamedTuple

import numpy as np

from sim.hw.warp import IDLE
from sim.machine.build import Node
from tracer.gemm.source import GemmSource
from traces.schema import Kind, Pipe
from traces.source import Workgroup


class Spread(NamedTuple):
    """Spread of the workgroups over a run, in K-steps. `samples`: samples with at least two running workgroups."""

    mean: float
    largest: float
    deviation: float
    """Mean over the samples of the standard deviation over the workgroups."""
    samples: int


class DriftProbe:
    """Samples the progress of the workgroups of one GEMM. Give `observe` to `sim.host.gpu.Gpu` as its line trace.

    Args:
        source: the GEMM, alone on its GPU.
        every_ps: simulated time between two samples.
    """

    def __init__(self, source: GemmSource, every_ps: int):
        self._steps: list[np.ndarray] = []
        self._first_event: list[np.ndarray] = []
        for workgroup in source.workgroups():
            self._steps.append(_steps_before(source, workgroup))
            self._first_event.append(workgroup.first_event)
        self._every_ps, self._next_ps = every_ps, 0
        self._samples: list[tuple[float, float]] = []

    def observe(self, node: Node) -> None:
        """Take a sample if it is time for one."""
        if node.engine[0]["now_ps"] < self._next_ps:
            return
        self._next_ps = int(node.engine[0]["now_ps"]) + self._every_ps
        places = [self._place(node, c, resident) for c, resident in np.argwhere(node.cus["resident"]["tag"] >= 0)]
        if len(places) > 1:
            self._samples.append((max(places) - min(places), float(np.std(places))))

    def spread(self) -> Spread:
        """Spread over all samples so far."""
        spreads, deviations = np.array(self._samples).T
        return Spread(float(spreads.mean()), float(spreads.max()), float(deviations.mean()), len(spreads))

    def _place(self, node: Node, c: int, place: int) -> float:
        """K-steps that a resident workgroup has issued, averaged over its warps."""
        resident = node.cus[c]["resident"][place]
        steps, first_event = self._steps[resident["tag"]], self._first_event[resident["tag"]]
        warps = node.warps[c]["warp"][resident["first_warp"] :][: resident["warps"]]
        done = [
            steps[-1] if warp["state"] == IDLE else steps[warp["event"]] - steps[first_event[w]]
            for w, warp in enumerate(warps)
        ]
        return float(np.mean(done))


def _steps_before(source: GemmSource, workgroup: Workgroup) -> np.ndarray:
    """f8[events + 1]: K-steps (of whole tiles) before each event, over all warps. Last element: K-steps of one warp."""
    events, kernel = workgroup.events, source.kernel
    arithmetic = (events["kind"] == Kind.COMPUTE) & (events["pipe"] == Pipe.TENSOR)
    work = np.where(arithmetic, events["work"], 0).astype(np.int64)
    step_work = kernel.tile_m * kernel.tile_n * kernel.tile_k // kernel.warps
    return np.append(np.cumsum(work) - work, work.sum() / kernel.warps) / step_work
