"""Values of a machine that must fit each other, beyond the type and range of each."""

from sim.hw.request import LINE_BYTES
from sim.presets.bounds import bound_rules
from sim.presets.preset import leaves
from sim.spec import DmaPolicy, Granularity

SHORTEST_LINK_PS = 1000
"""GPUs are simulated for the latency of a link at a time."""


def check_machine(machine, name, error):
    """Raise `error` (an exception class) for the first rule that the machine breaks, naming fields and values."""
    for fits, message in _rules(machine):
        if not fits:
            raise error(f"{name}: {message}")


def _rules(machine):
    """(holds, message) of every rule; a message names the fields, what was found and what is allowed."""
    yield from bound_rules(leaves(machine))
    yield from _cu_rules(machine.cu)
    yield from _cache_rules(machine)
    yield from _hbm_rules(machine.hbm)
    yield from _timing_rules(machine.hbm.timing)
    yield from _fabric_rules(machine)


def _cu_rules(cu):
    yield cu.lanes_per_warp in (32, 64), f"cu.lanes_per_warp: found {cu.lanes_per_warp}, allowed are 32 and 64"
    yield (
        cu.lanes_per_warp <= cu.threads <= cu.warps * cu.lanes_per_warp,
        f"cu.threads: found {cu.threads}, allowed is one warp ({cu.lanes_per_warp} lanes) to cu.warps x "
        f"cu.lanes_per_warp = {cu.warps * cu.lanes_per_warp}",
    )
    yield (
        cu.warps % cu.schedulers == 0,
        f"cu.warps: found {cu.warps}, allowed is a multiple of cu.schedulers = {cu.schedulers}",
    )


def _cache_rules(machine):
    l1, l2, hbm, cu = machine.l1, machine.l2, machine.hbm, machine.cu
    yield _divides(l1.bytes, l1.ways), _cache_message("l1", l1.bytes, f"l1.ways x {LINE_BYTES}", l1.ways)
    yield (
        _divides(l2.bytes, l2.banks * l2.ways),
        _cache_message("l2", l2.bytes, f"l2.banks x l2.ways x {LINE_BYTES}", l2.banks * l2.ways),
    )
    yield (
        not l1.unified_with_shared or cu.shared_bytes <= l1.bytes,
        f"cu.shared_bytes: found {cu.shared_bytes}, allowed is at most l1.bytes = {l1.bytes}, which it is part of",
    )
    yield (
        l2.banks % hbm.channels == 0,
        f"l2.banks: found {l2.banks}, allowed is a multiple of hbm.channels = {hbm.channels}",
    )


def _divides(cache_bytes, lines):
    return cache_bytes % (lines * LINE_BYTES) == 0


def _cache_message(unit, found_bytes, product, lines):
    return f"{unit}.bytes: found {found_bytes}, allowed is a multiple of {product} = {lines * LINE_BYTES}"


def _hbm_rules(hbm):
    for field in ("bank_groups", "banks_per_group", "row_bytes", "interleave_bytes"):
        value = getattr(hbm, field)
        yield value & (value - 1) == 0, f"hbm.{field}: found {value}, allowed is a power of two"
    yield hbm.row_bytes >= LINE_BYTES, f"hbm.row_bytes: found {hbm.row_bytes}, allowed is at least {LINE_BYTES}"
    yield (
        hbm.interleave_bytes >= LINE_BYTES,
        f"hbm.interleave_bytes: found {hbm.interleave_bytes}, allowed is at least a line, {LINE_BYTES}",
    )
    banks = hbm.channels * hbm.bank_groups * hbm.banks_per_group
    yield (
        hbm.capacity_bytes % (banks * hbm.row_bytes) == 0,
        f"hbm.capacity_bytes: found {hbm.capacity_bytes}, allowed is a multiple of one row in every bank, "
        f"{banks * hbm.row_bytes}",
    )
    yield (
        hbm.write_low < hbm.write_high,
        f"hbm.write_low: found {hbm.write_low}, allowed is less than hbm.write_high = {hbm.write_high}",
    )
    yield hbm.queue_entries >= 4, f"hbm.queue_entries: found {hbm.queue_entries}, allowed is at least a line, 4"


def _timing_rules(timing):
    for shorter, longer in (("CCD_S", "CCD_L"), ("RRD_S", "RRD_L"), ("WTR_S", "WTR_L"), ("RRD_L", "FAW")):
        least, value = getattr(timing, shorter), getattr(timing, longer)
        yield value >= least, f"hbm.timing.{longer}: found {value}, allowed is at least {shorter} = {least}"
    row = timing.RAS + timing.RP
    yield row <= timing.RC, f"hbm.timing.RC: found {timing.RC}, allowed is at least RAS + RP = {row}"
    yield (
        timing.REFI == 0 or timing.REFI > timing.RFC,
        f"hbm.timing.REFI: found {timing.REFI}, allowed is 0 (no refresh) or more than RFC = {timing.RFC}",
    )


def _fabric_rules(machine):
    tracker, mca, collective = machine.tracker, machine.mca, machine.collective
    yield (
        tracker.entries % tracker.ways == 0,
        f"tracker.entries: found {tracker.entries}, allowed is a multiple of tracker.ways = {tracker.ways}",
    )
    yield (
        tracker.granularity == Granularity.WORKGROUP or machine.dma.policy != DmaPolicy.CHUNK,
        "tracker.granularity: found wavefront, but dma.policy = chunk sends whole chunks; allowed is workgroup",
    )
    link = machine.link
    yield link.efficiency > 0, "link.efficiency: found 0, allowed is more"
    yield (
        link.latency_ps >= SHORTEST_LINK_PS,
        f"link.latency_ps: found {link.latency_ps}, allowed is at least {SHORTEST_LINK_PS}",
    )
    for fewer, more in (("loose_from", "medium_from"), ("medium_from", "strict_from")):
        low, high = getattr(mca, fewer), getattr(mca, more)
        yield low <= high, f"mca.{fewer}: found {low}, allowed is at most mca.{more} = {high}"
    yield (
        collective.warps <= machine.cu.warps,
        f"collective.warps: found {collective.warps}, allowed is at most cu.warps = {machine.cu.warps}",
    )
