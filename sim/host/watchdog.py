"""The watchdog: it notices GPUs whose simulated time advances without work, for example by refreshes alone."""

from collections.abc import Sequence

from sim.machine.build import Node

WINDOWS_PER_LOOK = 250_000
"""Time windows between two looks at one GPU: about a second."""
WINDOWS_WITHOUT_WORK = 1_000_000
"""More than any unit waits: the longest latency that a machine may have is 20,000 windows."""


class Watchdog:
    """Counts the time windows since GPUs last did something."""

    def __init__(self):
        self._work, self._windows = -1, 0

    def starved(self, nodes: Sequence[Node]) -> bool:
        """Have `WINDOWS_WITHOUT_WORK` windows passed on the GPUs without work? The first call begins to count."""
        work, windows = _work(nodes), sum(int(node.engine[0]["windows"]) for node in nodes)
        if work != self._work:
            self._work, self._windows = work, windows
        return windows - self._windows > WINDOWS_WITHOUT_WORK


def _work(nodes: Sequence[Node]) -> int:
    """A count that grows with everything that is done: warp events, packets, requests, DRAM columns, workgroups."""
    return sum(int(count) for node in nodes for count in _counts(node))


def _counts(node: Node) -> list[int]:
    columns = [node.channels[name].sum() for name in ("read_columns", "write_columns", "update_columns")]
    packets = [node.noc[name].sum() for name in ("request_packets", "answer_packets")]
    links = [node.ports[name].sum() for name in ("packets", "arrived_bytes")]
    served = node.banks["requests_served"].sum(), node.dmas["lines"].sum(), node.mscs["requests"].sum()
    return [*columns, *packets, *links, *served, node.cus["events"].sum(), node.dispatch["taken"].sum()]
