"""Lowest and highest value of every number of a machine, each with its reason.

The ranges are wider than any hardware. Inside them a run ends, fits into memory and overflows no counter. So a typing
error (a size in bits, a time in the wrong unit) gives a message that names the field, and not hours of nothing.
`sim.presets.check` has the rules between several values.
"""

from traces.bounds import Bound
from traces.units import GIB, KIB, MIB, PS_PER_MS, PS_PER_US

RECORD = "the size of the unit's record in the simulator"
WIDER = "wider than any hardware"
SLOW = "a slower unit would keep a run busy for hours"
CLOCK = Bound(
    10, 10_000, "a period is a whole number of picoseconds, and a slower clock would keep a run busy for hours"
)
LATENCY_CLK = Bound(0, 10_000, "no unit waits longer for a single access")
DRAM_CLK = Bound(0, 1000, "no DRAM waits longer between two commands")
DELAY_PS = Bound(0, 100 * PS_PER_MS, "0.1 s; a longer delay is a wrong unit")
PATH_PS = Bound(0, 100 * PS_PER_US, "0.1 ms; a longer latency is a wrong unit")
PER_CLK = Bound(0.001, 1000, f"{SLOW}, a faster one is none")
BYTES_PER_CLK = Bound(1, 64 * KIB, f"{WIDER}; at least a byte moves")
PACKET_BYTES = Bound(0, 4 * KIB, "a header is smaller than the data of many lines")
FIFO = Bound(1, 64 * KIB, "one request must fit; every place takes memory in the simulator")
SHARE = Bound(0, 1, "a share")
ROOM_FOR_TWO = "a bank of L2 needs room for an eviction and for the request that causes it"

BOUNDS: dict[str, Bound] = {
    "cu.count": Bound(1, 512, RECORD),
    "cu.clock_MHz": CLOCK,
    "cu.lanes_per_warp": Bound(32, 64, "32 or 64 lanes"),
    "cu.warps": Bound(1, 64, RECORD),
    "cu.workgroups": Bound(1, 32, RECORD),
    "cu.threads": Bound(32, 4096, "one warp to all warps of the record"),
    "cu.workgroup_threads": Bound(32, 4096, "one warp to all warps of the record"),
    "cu.registers_bytes": Bound(KIB, 64 * MIB, WIDER),
    "cu.register_granule": Bound(1, 512, WIDER),
    "cu.scalar_registers": Bound(0, MIB, WIDER),
    "cu.shared_bytes": Bound(1, 64 * MIB, WIDER),
    "cu.shared_granule_bytes": Bound(1, 64 * KIB, WIDER),
    "cu.shared_reserved_bytes": Bound(0, 64 * KIB, WIDER),
    "cu.barriers": Bound(1, 4096, WIDER),
    "cu.schedulers": Bound(1, 8, RECORD),
    "cu.issue_per_clk": PER_CLK,
    "cu.alu_warps_per_clk": PER_CLK,
    "cu.fma_warps_per_clk": PER_CLK,
    "cu.fp64_warps_per_clk": PER_CLK,
    "cu.sfu_warps_per_clk": PER_CLK,
    "cu.tensor_macs_per_clk": Bound(1, 1_000_000, WIDER),
    "cu.tensor_hold": SHARE,
    "cu.shared_bytes_per_clk": BYTES_PER_CLK,
    "cu.shared_latency_clk": LATENCY_CLK,
    "cu.lsu_lines_per_clk": PER_CLK,
    "cu.lsu_tags_per_clk": PER_CLK._replace(least=0, why=f"{PER_CLK.why}; 0 = as lsu_lines_per_clk"),
    "cu.loads_outstanding": Bound(1, 512, RECORD),
    "cu.bulk_lines_per_clk": Bound(0, 1000, "a faster unit is none; 0 = no bulk copies"),
    "cu.bulk_latency_clk": LATENCY_CLK,
    "cu.groups": Bound(0, 512, f"{WIDER}; 0 = no clusters of workgroups"),
    "cu.peer_latency_clk": LATENCY_CLK,
    "cu.peer_bytes_per_clk": BYTES_PER_CLK,
    "l1.bytes": Bound(128, 16 * MIB, "a line at least; every line takes memory in the simulator"),
    "l1.ways": Bound(1, 32, RECORD),
    "l1.latency_clk": LATENCY_CLK,
    "l1.mshrs": Bound(1, 1024, RECORD),
    "noc.clock_MHz": CLOCK,
    "noc.request_bytes_per_clk": BYTES_PER_CLK,
    "noc.response_bytes_per_clk": BYTES_PER_CLK,
    "noc.bank_bytes_per_clk": BYTES_PER_CLK,
    "noc.header_bytes": PACKET_BYTES,
    "noc.ack_bytes": PACKET_BYTES,
    "noc.latency_clk": LATENCY_CLK._replace(least=1, why="units run alone for this time; a longer one is no crossbar"),
    "noc.cu_fifo": FIFO,
    "noc.bank_fifo": FIFO._replace(least=2, why="one request is served while the next one comes"),
    "l2.bytes": Bound(128, 64 * GIB, "a line at least; every line takes memory in the simulator"),
    "l2.banks": Bound(1, 512, RECORD),
    "l2.ways": Bound(1, 32, RECORD),
    "l2.clock_MHz": CLOCK,
    "l2.latency_clk": LATENCY_CLK,
    "l2.mshrs": Bound(1, 8 * KIB, "every line in flight takes memory in the simulator"),
    "l2.mshr_merges": Bound(1, KIB, "every waiting request takes memory in the simulator"),
    "l2.dram_fifo": FIFO._replace(least=2, why=ROOM_FOR_TWO),
    "l2.atomics_per_clk": Bound(0, 1000, "a faster unit is none; 0 = no limit"),
    "l2.partitions": Bound(1, 64, WIDER),
    "l2.far_latency_clk": LATENCY_CLK,
    "l2.far_bytes_per_clk": BYTES_PER_CLK,
    "msc.clock_MHz": CLOCK,
    "msc.latency_clk": LATENCY_CLK,
    "msc.lines_per_clk": PER_CLK,
    "msc.fifo": FIFO._replace(least=2, why=ROOM_FOR_TWO),
    "msc.bytes": Bound(0, 64 * GIB, "every line takes memory in the simulator; 0 = it stores nothing"),
    "msc.ways": Bound(1, 32, RECORD),
    "msc.mshrs": Bound(1, 8 * KIB, "every line in flight takes memory in the simulator"),
    "msc.mshr_merges": Bound(1, KIB, "every waiting request takes memory in the simulator"),
    "hbm.channels": Bound(1, 256, "at most one for each bank of L2"),
    "hbm.clock_MHz": CLOCK,
    "hbm.bank_groups": Bound(1, 64, RECORD),
    "hbm.banks_per_group": Bound(1, 64, RECORD),
    "hbm.row_bytes": Bound(128, 64 * KIB, WIDER),
    "hbm.capacity_bytes": Bound(64 * KIB, MIB * GIB, WIDER),
    "hbm.interleave_bytes": Bound(128, GIB, "a line at least"),
    "hbm.column_bytes": Bound(32, 64, "32 or 64 bytes"),
    "hbm.queue_entries": Bound(4, 512, f"a line at least; at most {RECORD}"),
    "hbm.write_high": SHARE._replace(least=0.01),
    "hbm.write_low": SHARE._replace(most=0.99),
    "hbm.turn_requests": Bound(1, 64 * KIB, "a turn has a request; the other streams wait for all of them"),
    "hbm.request_ps": PATH_PS._replace(least=500, why="units run alone for this time; a longer one is a wrong unit"),
    "hbm.extra_latency_ps": PATH_PS,
    "hbm.refresh_postpone": Bound(0, 64, "JEDEC allows 8"),
    "hbm.age_limit_ps": DELAY_PS,
    "hbm.timing.burst": Bound(1, 64, "a column takes the data bus for a clock at least"),
    **{
        f"hbm.timing.{name}": DRAM_CLK
        for name in (
            *("CL", "WL", "RCD_rd", "RCD_wr", "RP", "RAS", "RC", "CCD_S", "CCD_L", "RRD_S", "RRD_L", "FAW", "RTP"),
            *("WR", "WTR_S", "WTR_L", "RTW", "CCDWL"),
        )
    },
    "hbm.timing.RFC": Bound(0, 10_000, "no DRAM takes longer to refresh"),
    "hbm.timing.REFI": Bound(0, 1_000_000, "JEDEC: a few microseconds"),
    "dispatch.launch_ps": DELAY_PS,
    "dispatch.gap_ps": DELAY_PS,
    "dispatch.workgroup_ps": PATH_PS,
    "dispatch.jitter_ps": PATH_PS,
    "dispatch.seed": Bound(0, 1 << 62, "any number of 62 bits"),
    "link.GB_per_s": Bound(0.1, 100_000, f"{SLOW}, a faster one is none"),
    "link.efficiency": Bound(0.01, 1, "a share; some of the link must be left for packets"),
    "link.latency_ps": PATH_PS._replace(least=1000, why="GPUs run alone for this time; a longer one is a wrong unit"),
    "link.header_bytes": PACKET_BYTES,
    "link.egress_fifo": FIFO,
    "link.credits": Bound(1, 16 * KIB, RECORD),
    "network.node_gpus": Bound(0, 1024, WIDER),
    "network.GB_per_s": Bound(0.1, 100_000, f"{SLOW}, a faster one is none"),
    "network.efficiency": Bound(0.01, 1, "a share; some of the link must be left for packets"),
    "network.latency_ps": PATH_PS._replace(
        least=1000, why="GPUs run alone for this time; a longer one is a wrong unit"
    ),
    "network.header_bytes": PACKET_BYTES,
    "network.credits": Bound(1, 16 * KIB, RECORD),
    "tracker.entries": Bound(0, 4 * MIB, f"at most {RECORD}; 0 = no limit"),
    "tracker.ways": Bound(1, 1024, WIDER),
    "tracker.wavefronts": Bound(1, 64, "the warps of a CU"),
    "tracker.address_bits": Bound(1, 64, "an address has 64 bits"),
    "tracker.counter_bits": Bound(1, 64, "a counter has 64 bits"),
    "tracker.latency_ps": PATH_PS,
    "dma.engines": Bound(1, 64, WIDER),
    "dma.clock_MHz": CLOCK,
    "dma.lines_per_clk": PER_CLK,
    "dma.outstanding": FIFO._replace(why="one line must be under way; every place takes memory in the simulator"),
    "dma.setup_ps": PATH_PS,
    "dma.start_ps": PATH_PS,
    **{f"mca.{name}": Bound(1, MIB, "entries of a DRAM queue") for name in ("threshold", "strict", "medium", "loose")},
    "mca.strict_from": SHARE,
    "mca.medium_from": SHARE,
    "mca.loose_from": SHARE,
    "mca.age_limit_ps": DELAY_PS,
    "collective.cus": Bound(1, 512, "the CUs of a GPU"),
    "collective.workgroups": Bound(1, 32, "the workgroups of a CU"),
    "collective.warps": Bound(1, 64, "the warps of a CU"),
    "collective.unroll": Bound(1, 16, "a warp has 64 slots for loads, up to four for each access"),
    "collective.shared_bytes": Bound(0, MIB, "a CU has at most some hundred KB"),
    "collective.slices": Bound(1, KIB, "a slice is smaller than a chunk; each takes a step"),
    "collective.launch_ps": DELAY_PS,
    "collective.step_ps": PATH_PS,
    "power.limit_W": Bound(0, 100_000, f"{WIDER}; 0 = not known"),
    "power.idle_W": Bound(0, 100_000, WIDER),
    "power.clock_W_per_GHz": Bound(0, 100_000, WIDER),
    "power.mac_pJ": Bound(0, 10_000, WIDER),
    "power.dram_pJ_per_byte": Bound(0, 100_000, WIDER),
    "power.knee_MHz": CLOCK,
    "power.tensor_macs_per_clk": Bound(1, 1_000_000, WIDER),
}
"""Dotted field of a machine -> Bound, for every field that is a number. A test compares RECORD with the records."""


def bound_rules(values):
    """(holds, field, what is allowed) for every number of a machine.

    Args:
        values: iterable of (dotted field, plain value).
    """
    for field, value in values:
        if field in BOUNDS:
            yield BOUNDS[field].holds(value), field, BOUNDS[field].allowed
