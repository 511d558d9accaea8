"""DMA engines (T3): read tiles that the Tracker has marked ready, and send them to other GPUs as updates or stores.

A descriptor names a tile, or the part of it that one wavefront stores (`Granularity`), and a SEND record. The SEND
record gives the port, the operation, and the tile at the receiver, which may be in another buffer. The ready list holds
commands in the order in which they became ready: a descriptor, or all of a chunk for one GPU (`DmaPolicy.CHUNK`). A
free engine takes the next command and carries it out alone. It reads line by line, past L2 (or through it:
`l2.fabric`), and puts the data into the fifo of the port when they come. It issues a read only if that fifo has a place
for the data. So a blocked link stops the engine. Reads use the communication stream of the memory channels. The engines
of a GPU act in the order of time.
"""

import numpy as np

from sim.hw.fifo import fifo_push, fifo_push_copy, fifo_room_ps
from sim.hw.link_record import fabric_ps
from sim.hw.request import LINE_BYTES, NEVER, SECTOR_BYTES, Op, Stream
from sim.hw.space import held, held_by_wavefront, row_end
from sim.hw.tags import sectors_in
from sim.spec import DmaPolicy, FabricPath
from tracer.compile.jit import compiled
from traces.schema import Cache
from traces.units import PS_PER_NS, period_ps

COUNTERS = {
    "descriptors": "DMA descriptors done",
    "lines": "lines read",
    "read_bytes": "bytes of the lines read, whole sectors",
    "blocks": "times that a read waited: for data of earlier reads, or for room",
    "out_max": "largest number of lines whose data had not come",
}
"""Counter fields of DMA and their meaning."""

COMMAND, DESCRIPTOR = 4, 5
"""Fields of a ready descriptor: tag, wavefront or -1, ready_ps, number of the send; at COMMAND the descriptors of the
command that begins with it; DESCRIPTOR in all."""

DMA = np.dtype(
    [
        # constants
        ("line_ps", "i8"),  # from read to read
        ("outstanding", "i8"),  # lines whose data have not come, at most
        ("setup_ps", "i8"),
        ("through_l2", "i8"),  # 1: its reads go to banks of L2
        ("request_ps", "i8"),  # to the memory controller, or to L2
        # state
        ("next_ps", "i8"),  # no read before
        ("descriptor", "i8"),  # place of the next descriptor of its command in the ready list
        ("left", "i8"),  # descriptors of its command that it has not taken
        ("tag", "i8"),  # current tile, -1 = none
        ("send", "i8"),  # SEND record: the tile's destination
        ("wavefront", "i8"),  # wavefront whose part of the tile is sent, -1 = the whole tile
        ("address", "i8"),  # first byte of the current tile or part
        ("runs", "i8"),
        ("run_bytes", "i8"),
        ("pitch_bytes", "i8"),
        ("run", "i8"),  # current row
        ("line", "i8"),  # next line, -1 = first of the row
        ("contributors", "i8"),
        ("began_ps", "i8"),  # when the current tile (or the last one) was taken
        ("last_tag", "i8"),  # current tile, or the last one
        ("out", "i8"),  # lines whose data have not come
        # counters
        ("descriptors", "i8"),
        ("lines", "i8"),
        ("read_bytes", "i8"),
        ("blocks", "i8"),
        ("out_max", "i8"),
    ],
    align=True,
)


def make_dmas(machine):
    """Idle engines of one GPU. machine: sim.spec.Machine."""
    spec = machine.dma
    dmas = np.zeros(spec.engines, DMA)
    line_ps = period_ps(spec.clock_MHz) / spec.lines_per_clk
    if spec.policy == DmaPolicy.PACED:
        link_GB_per_s = machine.link.GB_per_s * machine.link.efficiency
        line_ps = max(line_ps, spec.engines * LINE_BYTES * PS_PER_NS / link_GB_per_s)
    dmas["line_ps"] = max(1, round(line_ps))
    dmas["outstanding"], dmas["setup_ps"] = spec.outstanding, spec.setup_ps
    dmas["through_l2"], dmas["request_ps"] = machine.l2.fabric == FabricPath.THROUGH, fabric_ps(machine)
    dmas["tag"] = -1
    return dmas


@compiled
def dma_load(dma, tiles, wavefronts, tag, wavefront, ready_ps, number):
    """Load a descriptor: a tile, or a wavefront's part of it, for the GPU of its send `number`.

    Reads: wavefronts. Writes: dma, tiles.
    """
    tile = tiles[tag]
    dma.tag, dma.wavefront, dma.run, dma.line = tag, wavefront, 0, -1
    dma.send = tile.first_send + number
    dma.address, dma.pitch_bytes = tile.address, tile.pitch_bytes
    if wavefront < 0:
        dma.runs, dma.run_bytes = tile.runs, tile.run_bytes
        dma.contributors = held(tile)
    else:
        part = wavefronts[tag, wavefront]
        dma.address += part.first_run * tile.pitch_bytes + part.first_byte
        dma.runs, dma.run_bytes = part.runs, part.run_bytes
        dma.contributors = held_by_wavefront(tile, part)
    dma.next_ps = max(dma.next_ps, ready_ps + dma.setup_ps)
    dma.began_ps, dma.last_tag = dma.next_ps, tag
    dma.descriptors += 1


@compiled
def dma_line(dma):
    """Address of the next line to read. Writes: dma."""
    if dma.line < 0:
        dma.line = (dma.address + dma.run * dma.pitch_bytes) // LINE_BYTES * LINE_BYTES
    return dma.line


@compiled
def _sectors(dma, run, line):
    """Sectors of a line that belong to a row of the current tile or part."""
    first = max(line, (dma.address + run * dma.pitch_bytes) // SECTOR_BYTES * SECTOR_BYTES)
    end = min(line + LINE_BYTES, row_end(dma, run))
    count = (end - first) // SECTOR_BYTES
    return ((1 << count) - 1) << ((first - line) // SECTOR_BYTES)


@compiled
def dma_read_ps(dma, port, fifos, pool, fifo):
    """When the next read can be issued. It needs room in the fifo that takes it and a place for its data at the link.

    Returns:
        NEVER if it waits for data, or for a credit of unknown time.

    Reads: dma, port, fifos, pool, fifo.
    """
    if dma.out >= dma.outstanding:
        return NEVER
    place_ps = fifo_room_ps(fifos[port.dma_fifo], pool, port.reads)
    return max(dma.next_ps, place_ps, fifo_room_ps(fifo, pool, fifo.tail))


@compiled
def dma_read(dma, number, sends, port, fifo, pool, now_ps):
    """Put the next read into its fifo. After the last line the engine has no current tile.

    Reads: sends. Writes: dma, port, fifo, pool.
    """
    sectors = _sectors(dma, dma.run, dma.line)
    request = fifo_push(fifo, pool)
    request.line, request.ready_ps, request.born_ps = dma.line, now_ps + dma.request_ps, now_ps
    request.tag, request.load, request.source = dma.tag, dma.send, -1 - number
    request.contributors, request.bank, request.cache_set = dma.contributors, -1, 0
    request.sectors = request.full = sectors
    request.op, request.stream, request.cache = Op.READ, Stream.COMM_READ, Cache.UNCACHED
    request.link, request.wavefront, request.share = 1 + sends[dma.send].port, dma.wavefront, 0
    port.reads += 1
    dma.out += 1
    dma.out_max = max(dma.out_max, dma.out)
    dma.lines += 1
    dma.read_bytes += sectors_in(sectors) * SECTOR_BYTES
    dma.line += LINE_BYTES
    if dma.line >= row_end(dma, dma.run):
        dma.run += 1
        dma.line = -1
        if dma.run == dma.runs:
            dma.tag = -1
    if now_ps > dma.next_ps:
        dma.blocks += 1
    dma.next_ps = now_ps + dma.line_ps


@compiled
def dma_answer(dma, port, fifos, pool, data, op):
    """Put the data of a read, which come now, into the fifo of the link, as an update or a write at the receiving GPU.

    Reads: data. Writes: dma, port, fifos, pool.
    """
    line = fifo_push_copy(fifos[port.dma_fifo], pool, data, data.ready_ps)
    line.bank, line.cache_set, line.full, line.share = -1, 0, data.sectors, 0
    line.op, line.stream, line.cache = op, Stream.COMM_WRITE, Cache.UNCACHED
    if dma.out == dma.outstanding and data.ready_ps > dma.next_ps:
        dma.next_ps = np.int64(data.ready_ps)
        dma.blocks += dma.tag >= 0
    dma.out -= 1
