"""The machine as frozen data, one struct per hardware unit. A preset is a TOML file that fills all structs.

Field names end with the unit of measure: `_ps` picoseconds, `_clk` clocks of the unit's own clock, `_bytes`, `_MHz`.
Clock periods are rounded to whole picoseconds (D1). `sim.presets` reads presets and checks that every value has a
source. The range of every number is in `sim.presets.bounds`.
"""

import msgspec

from sim.policies import (
    Arbiter,
    BankHash,
    BankMap,
    CacheIndex,
    ChunkOrder,
    CollectiveCache,
    CountAt,
    DmaPolicy,
    DramOrder,
    FabricPath,
    Granularity,
    KernelOrder,
    L2Sharing,
    L2Write,
    PagePolicy,
    QueueOrganisation,
    Replacement,
    Topology,
    Turn,
    UpdateScope,
    WorkgroupOrder,
    WriteMiss,
)
from tracer.gemm.architecture import GemmLibrary


class Unit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all hardware units: immutable, unknown fields refused."""


class ComputeUnit(Unit, frozen=True, kw_only=True):
    """A CU / SM: residency limits, issue and pipes."""

    count: int
    clock_MHz: float
    lanes_per_warp: int  # 32 (NVIDIA) or 64 (AMD)
    warps: int  # largest number resident
    workgroups: int  # largest number resident
    threads: int  # largest number resident
    workgroup_threads: int  # largest number in one workgroup
    registers_bytes: int  # vector register file, split evenly over the schedulers
    register_granule: int  # registers per thread are rounded up to this
    scalar_registers: int  # of one scheduler, shared by its wavefronts (AMD); 0 = no such limit
    shared_bytes: int  # shared memory (LDS) that workgroups may use
    shared_granule_bytes: int  # shared memory per workgroup is rounded up to this
    shared_reserved_bytes: int  # shared memory per workgroup that the system reserves
    barriers: int  # hardware barriers; a workgroup of several warps holds at least one
    schedulers: int  # warps are pinned to scheduler warp % schedulers
    issue_per_clk: float  # warp instructions per scheduler and clock
    alu_warps_per_clk: float  # warp instructions of each pipe, per scheduler and clock
    fma_warps_per_clk: float
    fp64_warps_per_clk: float
    sfu_warps_per_clk: float
    one_vector_pipe: bool = False  # these four are one pipe: an instruction of any kind waits for all others
    tensor_macs_per_clk: float  # multiply-accumulates per CU and clock, dense fp16; each scheduler has a whole number
    tensor_hold: float = 0.0  # share of the time of an instruction of another pipe that holds up a busy matrix pipe
    shared_bytes_per_clk: int  # LDS port of the CU
    shared_latency_clk: int
    lsu_lines_per_clk: float  # line requests that the load/store unit makes
    lsu_tags_per_clk: float = 0.0  # the same of lines of one sector; 0 = as many as of whole lines
    loads_outstanding: int  # warp-level memory events in flight per CU
    bulk_lines_per_clk: float = 0.0  # line requests that the bulk copy unit makes; 0 = it has none
    bulk_latency_clk: int = 0  # from a bulk copy's instruction to its first line
    groups: int = 0  # groups of CUs (GPCs); a cluster of workgroups runs in one; 0 = there are no clusters
    peer_latency_clk: int = 0  # between two CUs of a group, one way
    peer_bytes_per_clk: int = 1  # between CUs of a group, per CU and direction
    library: GemmLibrary  # from whose kernels a GEMM's kernel is chosen


class L1(Unit, frozen=True, kw_only=True):
    """L1 data cache, sectored, write-through, no write-allocate."""

    bytes: int  # with unified_with_shared: shared memory and L1 together
    unified_with_shared: bool
    ways: int
    latency_clk: int  # hit
    mshrs: int  # lines in flight
    index: CacheIndex


class NoC(Unit, frozen=True, kw_only=True):
    """Crossbar between CUs and L2 banks: one port each way per CU and per bank."""

    clock_MHz: float
    request_bytes_per_clk: int  # CU -> L2, per CU port
    response_bytes_per_clk: int  # L2 -> CU, per CU port
    bank_bytes_per_clk: int  # either way, per L2 bank port
    header_bytes: int  # of each packet
    ack_bytes: int  # L2 -> CU, per sector stored in L2: its acknowledgement; 0 = stores are posted
    latency_clk: int  # one way, unloaded
    cu_fifo: int  # requests waiting at a CU port
    bank_fifo: int  # requests waiting at an L2 bank, and answers waiting there for the bank's port


class L2(Unit, frozen=True, kw_only=True):
    """Banked, sectored L2; it allocates on loads and stores."""

    bytes: int  # of all banks
    banks: int  # a multiple of the channels, also in each partition if these are private
    ways: int
    clock_MHz: float
    latency_clk: int  # request in -> hit data out
    mshrs: int  # lines in flight per bank
    mshr_merges: int  # requests waiting on one line
    index: CacheIndex  # set index
    dram_fifo: int  # requests waiting from a bank to its channel, per stream
    dram_order: DramOrder = DramOrder.STREAMS  # of these requests, and of those that wait for the DRAM queue
    write: L2Write = L2Write.BACK
    write_miss: WriteMiss = WriteMiss.LAZY
    replacement: Replacement = Replacement.LRU
    fabric: FabricPath = FabricPath.PAST
    atomics_per_clk: float  # atomic operations on one address that a bank does; 0 = no limit
    partitions: int  # of all banks and CUs; CU c is in partition c % partitions
    sharing: L2Sharing
    far_latency_clk: int  # additional clocks of the crossbar between two partitions, each way
    far_bytes_per_clk: int  # from other partitions, per CU port and direction, and per bank for copies


class MSC(Unit, frozen=True, kw_only=True):
    """Memory-side cache, one slice per memory channel."""

    present: bool
    clock_MHz: float
    latency_clk: int  # every read takes it once: a hit in all, a miss beside the access to memory
    lines_per_clk: float  # requests taken, per slice
    fifo: int  # requests waiting per slice and stream
    bytes: int  # of all slices; 0 = it stores nothing, every request passes
    ways: int
    mshrs: int  # lines in flight per slice
    mshr_merges: int  # requests waiting on one line, on average over a slice
    index: CacheIndex  # set index
    replacement: Replacement
    write_back: bool  # writes stay here until they are evicted; false: they go to memory at once, with a copy here


class Timing(Unit, frozen=True, kw_only=True):
    """DRAM timing in clocks of hbm.clock_MHz; names as in JEDEC (hbm2.md)."""

    burst: int  # data bus clocks of one 32-byte column
    CL: int
    WL: int
    RCD_rd: int
    RCD_wr: int
    RP: int
    RAS: int
    RC: int
    CCD_S: int
    CCD_L: int
    RRD_S: int
    RRD_L: int
    FAW: int
    RTP: int
    WR: int
    WTR_S: int  # end of write data -> read, other group
    WTR_L: int  # same group
    RTW: int  # read command -> write command (CL + burst + 2 - WL in set G)
    CCDWL: int  # NMC update -> update
    REFI: int  # 0 = no refresh
    RFC: int


class HBM(Unit, frozen=True, kw_only=True):
    """High-bandwidth memory: channels of banks behind FR-FCFS schedulers."""

    channels: int
    clock_MHz: float
    bank_groups: int
    banks_per_group: int
    row_bytes: int
    capacity_bytes: int  # `t3sim model` refuses what needs more; no simulation does (docs/machines.md)
    interleave_bytes: int  # contiguous bytes of one channel
    index: CacheIndex  # channel choice
    bank_map: BankMap
    bank_hash: BankHash = BankHash.NONE
    queue: QueueOrganisation
    column_bytes: int = 32  # moved by one column command: 32, or 64 (legacy mode with burst length 4)
    queue_entries: int  # 32-byte entries: of the unified queue, or of each of the two split queues
    write_high: float  # SPLIT: start to drain writes above this fill
    write_low: float  # SPLIT: back to reads below it
    page: PagePolicy
    arbiter: Arbiter
    turn: Turn = Turn.REQUEST  # of arbiters that take turns
    turn_requests: int = 4  # BURST: requests of a turn
    update_scope: UpdateScope
    request_ps: int  # from an L2 bank into the controller
    extra_latency_ps: int  # from the DRAM data pins back to L2 (controller, PHY), per read
    refresh_postpone: int  # refreshes that may be delayed (JEDEC: 8)
    age_limit_ps: int = 0  # a transaction queued longer goes first, 0 = no limit (starvation guard)
    timing: Timing


class Dispatch(Unit, frozen=True, kw_only=True):
    """Kernel launch and workgroup dispatch."""

    order: WorkgroupOrder
    kernels: KernelOrder
    chunks: ChunkOrder
    launch_ps: int  # kernel launch to first workgroup, first kernel
    gap_ps: int  # end of a kernel to the first workgroup of the next
    workgroup_ps: int  # between two dispatches
    jitter_ps: int  # uniform random delay of each workgroup's start
    seed: int


class Link(Unit, frozen=True, kw_only=True):
    """Links between GPUs: unidirectional channels, one each way, with credits for the receiver's buffer."""

    topology: Topology
    GB_per_s: float  # of one direction
    efficiency: float  # share of GB_per_s for packets
    latency_ps: int  # last bit out to last bit in; a packet takes its bytes at the rate of the link before
    header_bytes: int  # of each packet; a packet is one line
    egress_fifo: int  # packets waiting before a link, for the CUs and for the DMA engines each
    credits: int  # packets on the way or in the receiver's buffer
    in_switch: bool  # the switch adds what all GPUs send to a line, and copies a store to all GPUs (NVLink SHARP)


class Network(Unit, frozen=True, kw_only=True):
    """Links between GPUs of different nodes: one card per GPU, whose bandwidth all of these links share."""

    node_gpus: int  # of a node, in the order of their numbers; 0 = all GPUs; of a library: those of its row
    GB_per_s: float  # of one direction
    efficiency: float  # share of GB_per_s for packets
    latency_ps: int  # last bit out to last bit in; a packet takes its bytes at the rate of the link before
    header_bytes: int  # of each packet; a packet is one line
    credits: int  # packets on the way or in the receiver's buffer


class Tracker(Unit, frozen=True, kw_only=True):
    """Counts updates of output tiles (T3)."""

    entries: int  # tiles tracked at once, 0 = no limit
    ways: int  # entries of a set; a set is picked by workgroup number
    wavefronts: int  # counters per entry; kernels with more warps are refused
    address_bits: int  # of a counter: start of the wavefront's part of the tile
    counter_bits: int  # of a counter: bytes updated so far
    granularity: Granularity
    latency_ps: int  # last update counted to DMA descriptor ready
    count_at: CountAt


class DMA(Unit, frozen=True, kw_only=True):
    """DMA engines that send tracked tiles."""

    engines: int
    clock_MHz: float
    lines_per_clk: float  # reads issued, per engine
    outstanding: int  # lines whose data have not come, per engine; then they wait for the link (link.egress_fifo)
    setup_ps: int  # descriptor ready to first read
    start_ps: int  # the same for a copy that software starts: its command and its scheduling, before setup_ps
    policy: DmaPolicy


class MCA(Unit, frozen=True, kw_only=True):
    """Communication-aware memory-controller arbitration (T3): thresholds in 32-byte queue entries.

    The threshold is `strict` where the mean occupancy of the DRAM queues in the kernel's first stage is at least
    `strict_from` (a share of `hbm.queue_entries`), else `medium`, `loose`, or no limit. With split queues the occupancy
    and the threshold count the entries of both, while `hbm.queue_entries` is the size of one.
    """

    threshold: int  # of arbiter = "mca_fixed"
    strict: int
    medium: int
    loose: int
    strict_from: float
    medium_from: float
    loose_from: float
    age_limit_ps: int  # communication that waits longer takes turns with compute, 0 = no limit


class Collective(Unit, frozen=True, kw_only=True):
    """Collectives that run on CUs."""

    cus: int  # that it may use
    workgroups: int  # resident per CU
    warps: int  # per workgroup
    unroll: int  # loads in flight per warp
    shared_bytes: int  # shared memory of a workgroup: what other kernels of its CU cannot have
    slices: int  # portions of a chunk; a step waits for a portion of the step before; 1 = for the whole chunk
    launch_ps: int  # software overhead of a launch
    step_ps: int  # software overhead of every step
    cache: CollectiveCache
    library: str  # row of sim/collective/library.toml whose software the machine has; plain = none
    pulls: bool  # of a library: receivers load from buffers of the senders; false: senders store to receivers


class Power(Unit, frozen=True, kw_only=True):
    """Power of the board under a load of seconds. It decides the clock that a model's iterations reach; a run has the
    clock of `cu`, whatever its power."""

    limit_W: float  # of the board; 0 = not known, clocks do not fall
    idle_W: float
    clock_W_per_GHz: float  # of all CUs, while kernels run
    mac_pJ: float  # a multiply-accumulate of 16-bit numbers on the matrix units, with its data on the chip
    dram_pJ_per_byte: float
    knee_MHz: float  # clock up to which the voltage is the lowest
    tensor_macs_per_clk: float  # of a CU, where `cu.tensor_macs_per_clk` has a clock under load in it


class Machine(Unit, frozen=True, kw_only=True):
    """One GPU, and its links to other GPUs."""

    cu: ComputeUnit
    l1: L1
    noc: NoC
    l2: L2
    msc: MSC
    hbm: HBM
    dispatch: Dispatch
    link: Link
    network: Network
    tracker: Tracker
    dma: DMA
    mca: MCA
    collective: Collective
    power: Power
