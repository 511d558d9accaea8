"""The scheduler queue of one channel: requests split into 64-byte atoms.

An atom is up to two 32-byte columns of one bank and row. It waits in the lists of `sim.hw.hbm.lists`. A request enters
only as a whole and leaves with its last column. It waits outside while an older access of the other direction to one of
its atoms is queued. So a read sees the data of an older write, and a write does not overtake an older read.
"""

import numpy as np

from sim.hw.address_map import ATOM_BYTES, bank_row_column, channel_local
from sim.hw.hbm.lists import HITS, LISTS, MISSES, append, strike
from sim.hw.request import NEVER, STREAMS, Op
from sim.hw.tags import sectors_in
from tracer.compile.jit import compiled

MAX_ATOMS = 512
READS, WRITES = 0, 1
"""The two directions of the data bus."""
SECTORS_PER_ATOM = 2
BUCKETS = 256

ATOM = np.dtype(
    [
        ("order", "i8"),  # number of atoms accepted before it: its age
        ("row", "i8"),
        ("request", "i2"),  # slot of its request
        ("next", "i2"),  # younger atom in the same list, -1 at the end
        ("column", "i2"),  # next 32-byte column to move
        ("bucket", "i2"),  # of its address, to search for older accesses
        ("bank", "i1"),  # group-major
        ("commands", "i1"),  # column commands left
        ("op", "i1"),  # Op
        ("stream", "i1"),  # Stream
        ("opened", "i1"),  # 1: a row was activated for it
        ("pad", "i1", 3),
    ]
)


@compiled
def fits(channel, request):
    """Has the queue room for the whole request? Reads: channel, request."""
    return has_room(channel, READS if request.op == Op.READ else WRITES, entries_of(channel, request.sectors))


@compiled
def has_room(channel, direction, entries):
    """Has the queue of a direction room for so many entries? Reads: channel."""
    held = channel.queued[READS] + channel.queued[WRITES] if channel.split == 0 else channel.queued[direction]
    return held + entries <= channel.queue_entries


@compiled
def entries_of(channel, sectors):
    """Queue entries (32 bytes each) of a sector mask: the data that its column commands move."""
    if channel.column_entries == 1:
        return sectors_in(sectors)
    return channel.column_entries * (((sectors & 3) != 0) + ((sectors >> SECTORS_PER_ATOM) != 0))


@compiled
def conflicts(channel, request):
    """1 if an older access of the other direction to one of the request's atoms is still queued, else 0.

    Reads: channel, request.
    """
    other = WRITES if request.op == Op.READ else READS
    if channel.queued[other] == 0:
        return 0
    local = channel_local(request.line, channel.interleave_bytes, channel.channels)
    for half in range(2):
        if (request.sectors >> (SECTORS_PER_ATOM * half)) & 3:
            place = local // ATOM_BYTES + half
            if channel.pending[other, place % BUCKETS] > 0 and is_queued(channel, other, place):
                return 1
    return 0


@compiled
def is_queued(channel, direction, place):
    """Is an access in `direction` to the 64 bytes at `place` (in units of 64 bytes) queued?"""
    bank, row, column = bank_row_column(
        place * ATOM_BYTES, channel.group_bits, channel.bank_bits, channel.row_bits, channel.bank_map, channel.bank_hash
    )
    lists = channel.bank[bank]
    for head in (lists.head[HITS + direction], lists.head[MISSES + direction]):
        slot = head
        while slot >= 0:
            atom = channel.atom[slot]
            if atom.row == row and atom.column // SECTORS_PER_ATOM == column // SECTORS_PER_ATOM:
                return True
            slot = atom.next
    return False


@compiled
def enqueue(channel, request, now_ps):
    """Put a request into the queue. It must fit. Reads: request. Writes: channel."""
    channel.free_requests -= 1
    slot = np.int64(channel.free_request[channel.free_requests])
    channel.request[slot] = request
    channel.accepted_ps[slot] = now_ps
    channel.request_atoms[slot] = 0
    local = channel_local(request.line, channel.interleave_bytes, channel.channels)
    for half in range(2):
        sectors = (request.sectors >> (SECTORS_PER_ATOM * half)) & 3
        if sectors:
            _enqueue_atom(channel, slot, local + ATOM_BYTES * half, sectors)
    stream = request.stream
    channel.accepted[stream] += 1
    channel.wait_ps[stream] += now_ps - request.ready_ps


@compiled
def _enqueue_atom(channel, request_slot, local, sectors):
    request = channel.request[request_slot]
    channel.free_atoms -= 1
    slot = np.int64(channel.free_atom[channel.free_atoms])
    atom = channel.atom[slot]
    bank, row, column = bank_row_column(
        local, channel.group_bits, channel.bank_bits, channel.row_bits, channel.bank_map, channel.bank_hash
    )
    atom.order = channel.atoms
    atom.row = row
    atom.request = request_slot
    atom.bank = bank
    atom.column = column + (1 if sectors == 2 and channel.column_entries == 1 else 0)
    atom.bucket = (local // ATOM_BYTES) % BUCKETS
    atom.commands = 2 if sectors == 3 and channel.column_entries == 1 else 1
    atom.op = request.op
    atom.stream = request.stream
    atom.opened = 0
    direction = READS if request.op == Op.READ else WRITES
    channel.atoms += 1
    channel.request_atoms[request_slot] += 1
    channel.pending[direction, atom.bucket] += 1
    entries = atom.commands * channel.column_entries
    channel.queued[direction] += entries
    channel.queued_stream[request.stream] += entries
    _join_bank(channel, channel.bank[bank], bank, direction, slot, row)


@compiled
def _join_bank(channel, lists, bank, direction, slot, row):
    """Append a new atom to its list. If it is the first, its bank may have a command to issue."""
    if lists.open_row == row:
        if lists.head[HITS + direction] < 0:
            channel.column_wake_ps = 0
        append(channel, bank, HITS + direction, slot)
    else:
        if lists.head[MISSES + direction] < 0:
            ready_ps = lists.activate_ps if lists.open_row < 0 else lists.precharge_ps
            channel.row_wake_ps = min(channel.row_wake_ps, ready_ps)
        append(channel, bank, MISSES + direction, slot)


@compiled
def column_moved(channel, slot, direction):
    """One column command of an atom, the oldest hit of its bank, was issued: free its queue entries.

    After its last command the atom is free too.

    Returns:
        Slot of the request if this was its last command (the caller frees it), else -1.

    Writes: channel.
    """
    atom = channel.atom[slot]
    atom.commands -= 1
    atom.column += 1
    channel.queued[direction] -= channel.column_entries
    channel.queued_stream[atom.stream] -= channel.column_entries
    if atom.commands > 0:
        return -1
    bank = channel.bank[atom.bank]
    if atom.next < 0:
        strike(channel, bank, HITS + direction)
        channel.row_wake_ps = min(channel.row_wake_ps, bank.precharge_ps)
    else:
        bank.head[HITS + direction] = atom.next
    channel.pending[direction, atom.bucket] -= 1
    channel.row_hits += 1 - atom.opened
    if slot == channel.aged:
        channel.aged = -1
        channel.age_check_ps = 0
    channel.free_atom[channel.free_atoms] = slot
    channel.free_atoms += 1
    channel.request_atoms[atom.request] -= 1
    return np.int64(atom.request) if channel.request_atoms[atom.request] == 0 else -1


@compiled
def free_request(channel, slot):
    """Return a request slot to the free list. Writes: channel."""
    channel.free_request[channel.free_requests] = slot
    channel.free_requests += 1


@compiled
def account_occupancy(channel, now_ps):
    """Add the entries held since the last call to the integrals (entries x ps). Writes: channel."""
    elapsed_ps = now_ps - channel.accounted_ps
    if elapsed_ps > 0:
        for stream in range(STREAMS):
            channel.occupancy[stream] += channel.queued_stream[stream] * elapsed_ps
        channel.accounted_ps = now_ps


@compiled
def oldest_atom(channel):
    """Slot of the atom that was accepted first, -1 if the queue is empty. Reads: channel."""
    oldest = -1
    order = NEVER
    for which in range(LISTS):
        for place in range(channel.listed[which]):
            slot = channel.bank[channel.listed_bank[which, place]].head[which]
            if channel.atom[slot].order < order:
                oldest, order = slot, channel.atom[slot].order
    return oldest
