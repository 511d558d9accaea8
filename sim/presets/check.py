"""Rules between several values of a machine: what the units' records hold, and what must hold for progress.

The range of each value alone is in `sim.presets.bounds`.
"""

from sim.collective.library import PLAIN, tables
from sim.hw.l2_record import sends
from sim.hw.request import LINE_BYTES
from sim.presets.bounds import bound_rules
from sim.presets.preset import leaves
from sim.spec import HBM, BankMap, DmaPolicy, Granularity, L2Sharing, Machine, QueueOrganisation, WorkgroupOrder
from traces.errors import UserError
from traces.units import whole_period_ps

BANKS_MAX = 64
"""DRAM banks of a channel that the record holds."""
QUEUE_MAX = 512
"""Entries of a channel's queues that the record holds."""
TRACKER_SETS_MAX = 4096
"""Sets of the Tracker that the record holds."""
SG_ROW_BYTES = 256
"""Contiguous bytes of a bank in the bank map sg."""
SHORTEST_WINDOW_PS = 500
"""Shortest time in which a unit cannot affect another one. Units are simulated in steps of this time."""
SHORTEST_REFI_CLK = 100
LONGEST_INSTRUCTION_PS = 2_000_000
"""Longest time of a warp instruction on its pipe: a run of 2^32 instructions on each warp then overflows no counter."""
MACS_ROUNDED = 0.01
"""Largest relative error of the rate of the matrix pipes: that of each scheduler is a whole number."""
RATES = ("issue_per_clk", "alu_warps_per_clk", "fma_warps_per_clk", "fp64_warps_per_clk", "sfu_warps_per_clk")


def check_machine(machine: Machine, name: str = "machine", error: type[UserError] = UserError) -> None:
    """Refuse a machine that has an impossible value, is larger than the units' records, or could not make progress.

    Args:
        name: of the machine, for the message.
        error: exception class to raise. Its message names field, value, what is allowed and why.
    """
    _raise_first(dict(leaves(machine)), _rules(machine), name, error)


def check_hbm(hbm: HBM) -> None:
    """The same for the memory of a channel alone."""
    values = {f"hbm.{field}": value for field, value in leaves(hbm)}
    rules = (*bound_rules(values.items()), *_hbm_rules(hbm), *_timing_rules(hbm.timing))
    _raise_first(values, rules, "DRAM channel", UserError)


def _raise_first(values, rules, name, error):
    for fits, field, allowed in rules:
        if not fits:
            raise error(f"{name}: {field}: found {values[field]}, allowed is {allowed}")


def _rules(machine):
    """(True if the rule holds, field, what is allowed) for every rule."""
    yield from bound_rules(leaves(machine))
    power = machine.power
    idle = power.idle_W < power.limit_W or power.limit_W == 0
    yield idle, "power.idle_W", f"less than power.limit_W = {power.limit_W:g}"
    yield from _cu_rules(machine.cu)
    yield from _group_rules(machine)
    yield from _cache_rules(machine)
    yield from _hbm_rules(machine.hbm)
    yield from _timing_rules(machine.hbm.timing)
    yield from _fabric_rules(machine)


def _cu_rules(cu):
    lanes, threads = cu.lanes_per_warp, cu.warps * cu.lanes_per_warp
    yield lanes in (32, 64), "cu.lanes_per_warp", "32 or 64"
    allowed = f"one warp ({lanes} lanes) to cu.warps x cu.lanes_per_warp = {threads}"
    yield lanes <= cu.threads <= threads, "cu.threads", allowed
    period_ps = whole_period_ps(cu.clock_MHz)
    least = period_ps / LONGEST_INSTRUCTION_PS
    for field in RATES:
        allowed = f"at least {least:g} at this clock: an instruction takes at most {LONGEST_INSTRUCTION_PS:,} ps"
        yield getattr(cu, field) >= least, f"cu.{field}", allowed
    yield cu.warps % cu.schedulers == 0, "cu.warps", f"a multiple of cu.schedulers = {cu.schedulers}"
    whole = round(cu.tensor_macs_per_clk / cu.schedulers) * cu.schedulers
    fits = abs(whole - cu.tensor_macs_per_clk) <= MACS_ROUNDED * cu.tensor_macs_per_clk
    allowed = f"within {MACS_ROUNDED:.0%} of a multiple of cu.schedulers = {cu.schedulers}: each has a whole number"
    yield fits, "cu.tensor_macs_per_clk", allowed


def _group_rules(machine):
    cu, clock_ps = machine.cu, whole_period_ps(machine.noc.clock_MHz)
    if cu.groups == 0:
        return
    least = max(SHORTEST_WINDOW_PS, clock_ps)
    fits = cu.peer_latency_clk * whole_period_ps(cu.clock_MHz) >= least
    yield fits, "cu.peer_latency_clk", f"so many clocks that a packet takes {least} ps: CUs run alone for this time"
    fits = machine.dispatch.order != WorkgroupOrder.BY_PARTITION
    yield fits, "cu.groups", "0 with dispatch.order = by_partition"


def _cache_rules(machine):
    l1, l2, hbm, cu = machine.l1, machine.l2, machine.hbm, machine.cu
    l1_bytes, l2_bytes = l1.ways * LINE_BYTES, l2.banks * l2.ways * LINE_BYTES
    yield l1.bytes % l1_bytes == 0, "l1.bytes", f"a multiple of l1.ways x {LINE_BYTES} = {l1_bytes}"
    yield l2.bytes % l2_bytes == 0, "l2.bytes", f"a multiple of l2.banks x l2.ways x {LINE_BYTES} = {l2_bytes}"
    fits = not l1.unified_with_shared or cu.shared_bytes <= l1.bytes
    yield fits, "cu.shared_bytes", f"at most l1.bytes = {l1.bytes}, which it is part of"
    yield l2.banks % hbm.channels == 0, "l2.banks", f"a multiple of hbm.channels = {hbm.channels}"
    least = sends(l2)
    allowed = f"at least {least}: in order, a store may evict a line, read a sector and go to memory"
    yield l2.dram_fifo >= least, "l2.dram_fifo", allowed
    yield not machine.msc.present or machine.msc.fifo >= least, "msc.fifo", allowed
    yield from _partition_rules(machine)
    yield from _msc_rules(machine)


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
        copies = l2.sharing == L2Sharing.COPIES
        yield not copies or parts == 2, "l2.partitions", "2, as a line has one copy with l2.sharing = copies"
        for field in ("mshrs", "ways"):
            fits = not copies or getattr(l2, field) > 1
            yield fits, f"l2.{field}", "at least 2 with l2.sharing = copies, one of them for lines that are at home"
        far_ps = l2.far_latency_clk * whole_period_ps(machine.noc.clock_MHz)
        allowed = f"so many clocks that a packet takes {SHORTEST_WINDOW_PS} ps: partitions run alone for this time"
        yield far_ps >= SHORTEST_WINDOW_PS, "l2.far_latency_clk", allowed


def _msc_rules(machine):
    msc, channels = machine.msc, machine.hbm.channels
    way_bytes = channels * msc.ways * LINE_BYTES
    fits = msc.bytes % way_bytes == 0
    yield fits, "msc.bytes", f"a multiple of hbm.channels x msc.ways x {LINE_BYTES} = {way_bytes}"
    yield msc.present or msc.bytes == 0, "msc.bytes", "0, as msc.present = false"
    least = max(SHORTEST_WINDOW_PS, whole_period_ps(machine.noc.clock_MHz))
    fits = msc.bytes == 0 or msc.latency_clk * whole_period_ps(msc.clock_MHz) >= least
    yield fits, "msc.latency_clk", f"so many clocks that an answer takes {least} ps: time windows are whole clocks"


def _hbm_rules(hbm):
    for field in ("bank_groups", "banks_per_group", "row_bytes", "interleave_bytes"):
        value = getattr(hbm, field)
        yield value & (value - 1) == 0, f"hbm.{field}", "a power of two"
    most = BANKS_MAX // hbm.bank_groups
    yield hbm.banks_per_group <= most, "hbm.banks_per_group", f"at most {BANKS_MAX} / hbm.bank_groups = {most}"
    fits = hbm.bank_map != BankMap.SG or hbm.row_bytes >= SG_ROW_BYTES
    yield fits, "hbm.row_bytes", f"at least {SG_ROW_BYTES} with hbm.bank_map = sg"
    rows_bytes = hbm.channels * hbm.bank_groups * hbm.banks_per_group * hbm.row_bytes
    allowed = f"a multiple of one row in every bank, {rows_bytes}"
    yield hbm.capacity_bytes % rows_bytes == 0, "hbm.capacity_bytes", allowed
    yield hbm.column_bytes in (32, 64), "hbm.column_bytes", "32 or 64"
    yield hbm.write_low < hbm.write_high, "hbm.write_low", f"less than hbm.write_high = {hbm.write_high}"
    most = QUEUE_MAX // (2 if hbm.queue == QueueOrganisation.SPLIT else 1)
    yield hbm.queue_entries <= most, "hbm.queue_entries", f"at most {most} with hbm.queue = {hbm.queue.name.lower()}"


def _timing_rules(timing):
    for shorter, longer in (("CCD_S", "CCD_L"), ("RRD_S", "RRD_L"), ("WTR_S", "WTR_L"), ("RRD_L", "FAW")):
        least = getattr(timing, shorter)
        yield getattr(timing, longer) >= least, f"hbm.timing.{longer}", f"at least {shorter} = {least}"
    row = timing.RAS + timing.RP
    yield row <= timing.RC, "hbm.timing.RC", f"at least RAS + RP = {row}"
    least = max(SHORTEST_REFI_CLK, timing.RFC + _row_clk(timing))
    refreshes = timing.REFI == 0 or least <= timing.REFI
    allowed = f"0 (no refresh) or at least {least}: between two refreshes a row must be opened, used and closed"
    yield refreshes, "hbm.timing.REFI", allowed


def _row_clk(timing):
    """Clocks that it takes to open a row, read or write a line of it, and close it."""
    column = max(timing.CCD_L, timing.CCDWL, timing.burst)
    wait = max(timing.RTW, timing.WL + timing.burst + timing.WTR_L)
    read = timing.RCD_rd + max(timing.RTP, timing.CL)
    write = timing.RCD_wr + timing.WL + timing.burst + timing.WR
    return max(timing.RC, max(read, write) + wait + 4 * column + timing.RP)


def _fabric_rules(machine):
    tracker, mca, noc = machine.tracker, machine.mca, machine.noc
    window_ps = noc.latency_clk * whole_period_ps(noc.clock_MHz)
    allowed = f"so many clocks that a packet takes {SHORTEST_WINDOW_PS} ps: units run alone for this time"
    yield window_ps >= SHORTEST_WINDOW_PS, "noc.latency_clk", allowed
    clock_ps = whole_period_ps(noc.clock_MHz)
    allowed = f"at least {clock_ps} ps, a clock of the crossbar: time windows are whole clocks"
    yield machine.hbm.request_ps >= clock_ps, "hbm.request_ps", allowed
    yield machine.link.latency_ps >= clock_ps, "link.latency_ps", allowed
    yield machine.network.latency_ps >= clock_ps, "network.latency_ps", allowed
    yield tracker.entries % tracker.ways == 0, "tracker.entries", f"a multiple of tracker.ways = {tracker.ways}"
    most = TRACKER_SETS_MAX * tracker.ways
    allowed = f"at most {TRACKER_SETS_MAX} x tracker.ways = {most}, the size of the unit's record; 0 = no limit"
    yield tracker.entries <= most, "tracker.entries", allowed
    fits = tracker.granularity == Granularity.WORKGROUP or machine.dma.policy != DmaPolicy.CHUNK
    yield fits, "tracker.granularity", "workgroup, as dma.policy = chunk sends whole chunks"
    for fewer, more in (("loose_from", "medium_from"), ("medium_from", "strict_from")):
        high = getattr(mca, more)
        yield getattr(mca, fewer) <= high, f"mca.{fewer}", f"at most mca.{more} = {high}"
    warps = machine.cu.warps
    yield machine.collective.warps <= warps, "collective.warps", f"at most cu.warps = {warps}"
    libraries = (PLAIN, *tables().row)
    yield machine.collective.library in libraries, "collective.library", f"one of {', '.join(libraries)}"
