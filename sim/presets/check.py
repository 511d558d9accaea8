"""Rules between several values of a machine. Type and range of each value are checked before."""

from sim.hw.request import LINE_BYTES
from sim.presets.bounds import bound_rules
from sim.presets.preset import leaves
from sim.spec import DmaPolicy, Granularity, L2Sharing

SHORTEST_LINK_PS = 1000
"""Shortest latency of a link. GPUs are simulated in time steps of this latency."""


def check_machine(machine, name, error):
    """Raise `error` (an exception class) for the first broken rule. It names field, value and what is allowed."""
    values = dict(leaves(machine))
    for fits, field, allowed in _rules(machine):
        if not fits:
            raise error(f"{name}: {field}: found {values[field]}, allowed is {allowed}")


def _rules(machine):
    """(True if the rule holds, field, what is allowed) for every rule."""
    yield from bound_rules(leaves(machine))
    yield from _cu_rules(machine.cu)
    yield from _cache_rules(machine)
    yield from _hbm_rules(machine.hbm)
    yield from _timing_rules(machine.hbm.timing)
    yield from _fabric_rules(machine)


def _cu_rules(cu):
    lanes, threads = cu.lanes_per_warp, cu.warps * cu.lanes_per_warp
    yield lanes in (32, 64), "cu.lanes_per_warp", "32 or 64"
    allowed = f"one warp ({lanes} lanes) to cu.warps x cu.lanes_per_warp = {threads}"
    yield lanes <= cu.threads <= threads, "cu.threads", allowed
    yield cu.warps % cu.schedulers == 0, "cu.warps", f"a multiple of cu.schedulers = {cu.schedulers}"


def _cache_rules(machine):
    l1, l2, hbm, cu = machine.l1, machine.l2, machine.hbm, machine.cu
    l1_bytes, l2_bytes = l1.ways * LINE_BYTES, l2.banks * l2.ways * LINE_BYTES
    yield l1.bytes % l1_bytes == 0, "l1.bytes", f"a multiple of l1.ways x {LINE_BYTES} = {l1_bytes}"
    yield l2.bytes % l2_bytes == 0, "l2.bytes", f"a multiple of l2.banks x l2.ways x {LINE_BYTES} = {l2_bytes}"
    fits = not l1.unified_with_shared or cu.shared_bytes <= l1.bytes
    yield fits, "cu.shared_bytes", f"at most l1.bytes = {l1.bytes}, which it is part of"
    yield l2.banks % hbm.channels == 0, "l2.banks", f"a multiple of hbm.channels = {hbm.channels}"
    yield from _partition_rules(machine)
    yield from _msc_rules(machine.msc, hbm.channels)


def _partition_rules(machine):
    l2, channels = machine.l2, machine.hbm.channels
    parts = l2.partitions
    if parts == 1:
        return
    yield machine.cu.count % parts == 0, "cu.count", f"a multiple of l2.partitions = {parts}"
    if l2.sharing == L2Sharing.PRIVATE:
        least = parts * channels
        yield l2.banks % least == 0, "l2.banks", f"a multiple of l2.partitions x hbm.channels = {least}"
    else:
        yield channels % parts == 0, "hbm.channels", f"a multiple of l2.partitions = {parts}"
        yield l2.sharing != L2Sharing.COPIES or l2.mshrs > 1, "l2.mshrs", "at least 2, one for lines that are at home"
        yield l2.far_latency_clk >= 1, "l2.far_latency_clk", "at least 1, as lines are in other partitions"


def _msc_rules(msc, channels):
    way_bytes = channels * msc.ways * LINE_BYTES
    fits = msc.bytes % way_bytes == 0
    yield fits, "msc.bytes", f"a multiple of hbm.channels x msc.ways x {LINE_BYTES} = {way_bytes}"
    yield msc.present or msc.bytes == 0, "msc.bytes", "0, as msc.present = false"


def _hbm_rules(hbm):
    for field in ("bank_groups", "banks_per_group", "row_bytes", "interleave_bytes"):
        value = getattr(hbm, field)
        yield value & (value - 1) == 0, f"hbm.{field}", "a power of two"
    yield hbm.row_bytes >= LINE_BYTES, "hbm.row_bytes", f"at least {LINE_BYTES}"
    yield hbm.interleave_bytes >= LINE_BYTES, "hbm.interleave_bytes", f"at least a line, {LINE_BYTES}"
    rows_bytes = hbm.channels * hbm.bank_groups * hbm.banks_per_group * hbm.row_bytes
    allowed = f"a multiple of one row in every bank, {rows_bytes}"
    yield hbm.capacity_bytes % rows_bytes == 0, "hbm.capacity_bytes", allowed
    yield hbm.write_low < hbm.write_high, "hbm.write_low", f"less than hbm.write_high = {hbm.write_high}"
    yield hbm.queue_entries >= 4, "hbm.queue_entries", "at least a line, 4"


def _timing_rules(timing):
    for shorter, longer in (("CCD_S", "CCD_L"), ("RRD_S", "RRD_L"), ("WTR_S", "WTR_L"), ("RRD_L", "FAW")):
        least = getattr(timing, shorter)
        yield getattr(timing, longer) >= least, f"hbm.timing.{longer}", f"at least {shorter} = {least}"
    row = timing.RAS + timing.RP
    yield row <= timing.RC, "hbm.timing.RC", f"at least RAS + RP = {row}"
    refreshes = timing.REFI == 0 or timing.REFI > timing.RFC
    yield refreshes, "hbm.timing.REFI", f"0 (no refresh) or more than RFC = {timing.RFC}"


def _fabric_rules(machine):
    tracker, link, mca = machine.tracker, machine.link, machine.mca
    yield tracker.entries % tracker.ways == 0, "tracker.entries", f"a multiple of tracker.ways = {tracker.ways}"
    fits = tracker.granularity == Granularity.WORKGROUP or machine.dma.policy != DmaPolicy.CHUNK
    yield fits, "tracker.granularity", "workgroup, as dma.policy = chunk sends whole chunks"
    yield link.efficiency > 0, "link.efficiency", "more than 0"
    yield link.latency_ps >= SHORTEST_LINK_PS, "link.latency_ps", f"at least {SHORTEST_LINK_PS}"
    for fewer, more in (("loose_from", "medium_from"), ("medium_from", "strict_from")):
        high = getattr(mca, more)
        yield getattr(mca, fewer) <= high, f"mca.{fewer}", f"at most mca.{more} = {high}"
    warps = machine.cu.warps
    yield machine.collective.warps <= warps, "collective.warps", f"at most cu.warps = {warps}"
