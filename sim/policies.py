"""Policies of the hardware units: what a machine (`sim.spec`) chooses by name."""

from enum import IntEnum


class CacheIndex(IntEnum):
    """How a line address selects a set, an L2 bank or a channel."""

    INTERLEAVE = 0  # low-order bits
    HASH = 1  # low-order bits plus all higher bits, XOR-folded: power-of-two strides spread; of sets: as SCATTER
    SCATTER = 2  # low-order bits plus the higher bits, mixed by a multiplication: any stride spreads


class QueueOrganisation(IntEnum):
    """DRAM scheduler queue of a channel."""

    UNIFIED = 0  # one queue, reads and writes in one FR-FCFS order
    SPLIT = 1  # a read queue and a write queue; writes drain between two watermarks


class BankMap(IntEnum):
    """Channel-local address to bank, most significant first (hbm2.md)."""

    RO = 0  # row | group | bank | column: a row is contiguous
    BG = 1  # row | bank | column | group | 64 B: the bank group changes every 64 bytes
    RG = 2  # row | bank | group | column: a row is contiguous, the next row is in another group
    SG = 3  # row | bank | group | column | group | 256 B: 256 bytes are contiguous, the next are in another group


class BankHash(IntEnum):
    """Bits of the row that change the bank (D18)."""

    NONE = 0
    XOR = 1  # all row bits, folded to the width of the bank number, are XORed into it


class L2Sharing(IntEnum):
    """How the partitions of the L2 share the lines (sim.hw.partition)."""

    HOME = 0  # a line is kept once, in its home partition
    COPIES = 1  # and copies of it in the partitions that read it
    PRIVATE = 2  # each partition caches all lines; they are not coherent within a kernel


class L2Write(IntEnum):
    """When a store goes from L2 to memory."""

    BACK = 0  # when its line is evicted
    THROUGH = 1  # at once; its sectors stay clean (atomics: when their line is evicted)


class WriteMiss(IntEnum):
    """Sectors of a store that L2 reads from memory, because they are absent."""

    LAZY = 0  # none; a sector written in part is read when it is loaded (GPGPU-Sim's policy L)
    PARTIAL = 1  # those written in part (GPGPU-Sim's policy F, fetch on write)
    ALL = 2  # all (as GPGPU-Sim's policy W, without the write that this one also sends)


class FabricPath(IntEnum):
    """The way of packets from links, and of reads of DMA engines, to the memory of a GPU."""

    PAST = 0  # past L2 to the memory channel (D24)
    THROUGH = 1  # through the bank of L2 that has the line: its pipeline, its fifo to the channel


class Replacement(IntEnum):
    """The way of a set that a new line replaces. An empty way always comes first."""

    LRU = 0  # the least recently used
    RANDOM = 1  # any (D57); a fixed sequence of numbers, so that runs repeat


class PagePolicy(IntEnum):
    OPEN = 0
    CLOSED = 1  # precharge when no queued request hits the open row


class UpdateScope(IntEnum):
    """The later updates that wait CCDWL after an update."""

    SAME_GROUP = 0
    CHANNEL = 1
    OFF = 2
    BANK = 3  # of the same bank


class DramOrder(IntEnum):
    """The order of requests between L2 and a channel's DRAM queue."""

    STREAMS = 0  # a fifo per stream: requests of two streams can pass each other
    IN_ORDER = 1  # one fifo for reads and writes of compute, one for those of communication (as GPGPU-Sim's queue)


class Turn(IntEnum):
    """How long a stream keeps its turn when streams take turns."""

    REQUEST = 0  # for one request
    BURST = 1  # for hbm.turn_requests in a row, if so many wait
    ROW = 2  # while its next request is in the DRAM row of its last one


class Arbiter(IntEnum):
    """The rule that selects the stream whose request enters a channel's DRAM queue next."""

    FCFS = 0  # oldest first
    ROUND_ROBIN = 1  # streams in turn (T3 without MCA)
    COMPUTE_FIRST = 2  # communication only when no compute request waits
    MCA = 3  # compute first, communication while the queue is short; the first stage sets the limit
    MCA_FIXED = 4  # the same with mca.threshold from the start
    USER = 9  # the policy file that the environment variable T3SIM_POLICY names (sim.hw.policy)


class Topology(IntEnum):
    """How the GPUs are joined."""

    RING = 0  # a link each way between neighbours
    FULLY_CONNECTED = 1  # a link each way between any two
    SWITCH = 2  # one link each way per GPU, to a switch that never blocks


class CountAt(IntEnum):
    """When the Tracker counts an update."""

    ENQUEUE = 0  # when it enters the DRAM queue, off the critical path (T3)
    SERVICE = 1  # when its last column was issued


class Granularity(IntEnum):
    """The part of a tracked tile that a DMA engine sends at once (T3)."""

    WORKGROUP = 0  # the tile, when the counters of all its wavefronts have reached their thresholds
    WAVEFRONT = 1  # each wavefront's part of it, when its own counter has reached its threshold


class DmaPolicy(IntEnum):
    """The rate and the portions in which a DMA engine reads the tiles that it sends."""

    TILE = 0  # a tile as soon as it is ready, at the engine's rate
    PACED = 1  # the same at the rate of the link
    CHUNK = 2  # a chunk only when all of it is ready: a command, which one engine carries out alone


class CollectiveCache(IntEnum):
    """Handling of collective traffic in L2."""

    UNCACHED = 0  # bypasses L2 (streaming)
    ALLOCATE = 1  # chunks stay in L2 between steps


class KernelOrder(IntEnum):
    """Which kernel gets a place on a CU that kernels share."""

    IN_ORDER = 0  # a kernel starts when all workgroups of the kernels before it have places
    IN_TURN = 1  # of the kernels that wait, the one that got its last place first


class ChunkOrder(IntEnum):
    """The order in which a GEMM makes tiles that go straight to their owners. On a ring: chunk after chunk."""

    IN_TURN = 0  # a tile of each chunk in turn, so that each owner gets from all GPUs all the time
    ONE_BY_ONE = 1  # chunk after chunk, each GPU from another one on


class WorkgroupOrder(IntEnum):
    """The order in which workgroups are placed on CUs."""

    BREADTH_FIRST = 0  # one to every CU, then a second one
    DEPTH_FIRST = 1  # fill a CU before the next
    BY_PARTITION = 2  # workgroup k to partition k % l2.partitions, there one to every CU first
