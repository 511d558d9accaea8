"""When an L2 bank that waits for room can continue, and which of two banks waits longer.

Four fields of a bank describe its wait. Only a step of the bank (`l2_step`) writes them; the phases read them.

- `blocked`: what it waits for. Each step clears it at its begin, and again if it serves a request. `_serve` sets
  FOR_ANSWERS or FOR_CHANNEL, `has_copy_room` and `flush_step` set FOR_CHANNEL. A bank that waits only for a fill,
  for a miss entry or for a waiting place keeps 0: a fill wakes it. `retry_memory` asks `l2_retry_ps` for banks with
  another value, after all consumers of the window have run.
- `room_ps`: when there is such room, NEVER = not known yet. The places that set `blocked` set it. `_serve_first` sets
  it to NEVER before each try, and to the earliest of all tries if none succeeds. Nothing clears it: it counts only
  while `blocked` is not 0. `run_banks` passes it on to the other banks of the channel, which would find no room either.
- `tried_ps`: when the bank last tried to serve a request. `l2_step` sets it before each try, nothing clears it. Only
  `copy_retry_ps` reads it: room that was there at that time already is not what the bank waits for.
- `blocked_since_ps`: since when its oldest request could not be served, whatever the reason; -1 = it does not wait.
  `l2_step` sets it at the first try that fails. The next request that is served clears it, and adds the time to the
  counter `blocked_ps`. A flush leaves it as it is.
"""

import numpy as np

from sim.hw.fifo import fifo_has_room, fifo_head_ps, fifo_room_ps
from sim.hw.l2_far import copy_retry_ps
from sim.hw.l2_record import FOR_ANSWERS, FOR_CHANNEL
from sim.hw.request import NEVER, STREAMS, Stream
from tracer.compile.jit import compiled


@compiled(inline=True)
def _awaited(bank, late):
    """Number of the last answer that may have to wait for data once the bank has taken any request.

    They may all come at once: of each line in flight, and of each read of its own.
    """
    return late.tail + (bank.misses_used + 1) * bank.merges + bank.reads_out


@compiled(inline=True)
def room_for_answers(bank, fifos, pool, now_ps):
    """Is there room for all answers that are due once the bank has taken any request? Reads: bank. Writes: fifos."""
    hits, late = fifos[bank.hits], fifos[bank.late]
    return fifo_has_room(hits, pool, hits.tail, now_ps) and fifo_has_room(late, pool, _awaited(bank, late), now_ps)


@compiled
def answers_room_ps(bank, fifos, pool):
    """When there is such room, as far as known. Reads: bank, fifos, pool."""
    hits, late = fifos[bank.hits], fifos[bank.late]
    return max(fifo_room_ps(hits, pool, hits.tail), fifo_room_ps(late, pool, _awaited(bank, late)))


@compiled(inline=True)
def room_for_channel(bank, fifos, pool, now_ps):
    """Is there room towards the channel for all that any request sends? Reads: bank. Writes: fifos."""
    for stream in range(STREAMS):
        fifo = fifos[bank.dram[stream]]
        if not fifo_has_room(fifo, pool, fifo.tail + bank.sends - 1, now_ps):
            return False
    return True


@compiled
def l2_room_ps(bank, fifos, pool):
    """When there is such room, as far as known. Reads: bank, fifos, pool."""
    room_ps = np.int64(0)
    for stream in range(STREAMS):
        fifo = fifos[bank.dram[stream]]
        room_ps = max(room_ps, fifo_room_ps(fifo, pool, fifo.tail + bank.sends - 1))
    return room_ps


@compiled(inline=True)
def l2_retry_ps(bank, fifos, pool):
    """When a bank that waits for room can continue, as far as known; NEVER if it does not wait.

    Reads: bank, fifos, pool.
    """
    if bank.blocked == 0:
        return NEVER
    if bank.blocked == FOR_ANSWERS:
        return answers_room_ps(bank, fifos, pool)
    if bank.flush_set >= 0:
        writes = fifos[bank.dram[Stream.COMPUTE_WRITE]]
        return fifo_room_ps(writes, pool, writes.tail)
    room_ps = l2_room_ps(bank, fifos, pool)
    return room_ps if bank.peer < 0 else copy_retry_ps(bank, fifos, pool, room_ps)


@compiled(inline=True)
def waits_longer(bank, other):
    """Of two banks that act at once: has `bank` waited longer for room? Reads: bank, other."""
    return bank.blocked_since_ps >= 0 and (other.blocked_since_ps < 0 or bank.blocked_since_ps < other.blocked_since_ps)


@compiled(inline=True)
def waits_for_room(bank, fifos, pool, now_ps):
    """Would a step of the bank do nothing before there is room towards its channel? Reads: bank, fifos, pool.

    False if it is not known: a bank with far requests may look past the one that waits.
    """
    if bank.blocked != FOR_CHANNEL or bank.flush_set >= 0 or bank.far >= 0:
        return False
    return fifo_head_ps(fifos[bank.fills], pool) > now_ps
