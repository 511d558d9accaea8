"""The line trace: the state of the machine as one line of text per time window, one character per unit.

CU       .  empty     r  a warp can issue     w  all warps wait     b  load/store unit blocked
L2 bank  0-9 fill of its request fifo in tenths, ! blocked
channel  0-9 fill of its DRAM queue in tenths
"""

from sim.hw.warp import READY
from sim.machine.build import Node
from traces.units import ps_to_ns


def line_of(node: Node) -> str:
    """State of the machine at the end of the last window."""
    time_ns = ps_to_ns(int(node.engine[0]["now_ps"]))
    cus = "".join(_cu(node, c) for c in range(len(node.cus)))
    banks = "".join(
        "!" if bank["blocked_since_ps"] >= 0 else _tenths(*_fill(node, bank["requests"])) for bank in node.banks
    )
    channels = "".join(
        _tenths(int(channel["queued"].sum()), int(channel["queue_entries"])) for channel in node.channels
    )
    return f"{time_ns:12.3f} ns  cu {cus}  l2 {banks}  hbm {channels}"


def _cu(node: Node, c: int) -> str:
    if node.cus[c]["residents"] == 0:
        return "."
    if node.lsus[c]["blocked_since_ps"] >= 0:
        return "b"
    return "r" if (node.warps[c]["warp"]["state"] == READY).any() else "w"


def _fill(node: Node, fifo: int) -> tuple[int, int]:
    record = node.fifos[fifo]
    return int(record["tail"] - record["head"]), int(record["limit"])


def _tenths(fill: int, limit: int) -> str:
    return str(min(9, fill * 10 // limit))
