"""The largest machine that the unit records hold. Record sizes are fixed, so all machines share one compilation."""

from sim.hw.cu_record import MAX_SCHEDULERS, MAX_WORKGROUPS
from sim.hw.l1 import MAX_ENTRIES
from sim.hw.link import MAX_CREDITS
from sim.hw.lsu_record import MAX_LOADS
from sim.hw.noc_record import MAX_BANKS, MAX_CUS
from sim.hw.tags import MAX_WAYS
from sim.hw.tracker import MAX_SETS
from sim.hw.warp import MAX_WARPS
from sim.spec import Machine
from traces.errors import UserError
from traces.units import whole_period_ps

LIMITS = {
    "cu.count": MAX_CUS,
    "cu.warps": MAX_WARPS,
    "cu.workgroups": MAX_WORKGROUPS,
    "cu.schedulers": MAX_SCHEDULERS,
    "cu.loads_outstanding": MAX_LOADS,
    "l1.ways": MAX_WAYS,
    "l1.mshrs": MAX_ENTRIES,
    "l2.banks": MAX_BANKS,
    "l2.ways": MAX_WAYS,
    "msc.ways": MAX_WAYS,
    "link.credits": MAX_CREDITS,
}
"""Field -> largest value. `sim.hw.hbm.setup` checks the fields of HBM channels."""


def check_limits(machine: Machine, ports: int = 0) -> None:
    """Refuse a machine that is larger than the records, or whose latencies are too short for the time windows.

    Args:
        ports: number of links.

    Raises:
        UserError: names the field, its value and the allowed values.
    """
    grid_ps = whole_period_ps(machine.noc.clock_MHz)
    latencies = [("noc.latency_clk", machine.noc.latency_clk, 1), ("hbm.request_ps", machine.hbm.request_ps, grid_ps)]
    latencies += [("link.latency_ps", machine.link.latency_ps, grid_ps)] if ports else []
    for field, value, least in latencies:
        if value < least:
            raise UserError(f"{field}: found {value}, allowed is at least {least}, a clock of the crossbar")
    for field, limit in LIMITS.items():
        unit, name = field.split(".")
        value = getattr(getattr(machine, unit), name)
        if value > limit:
            raise UserError(f"{field}: found {value}, allowed is at most {limit}, the size of the unit's record")
    tracker = machine.tracker
    if tracker.entries > MAX_SETS * tracker.ways:
        raise UserError(
            f"tracker.entries: found {tracker.entries}, allowed is at most {MAX_SETS} x tracker.ways = "
            f"{MAX_SETS * tracker.ways}, the size of the unit's record; 0 = no limit"
        )
