"""Phase of the Tracker in a time window: it counts what the channels report, and gives entries to tiles.

All reports and requests of a GPU are served in the order of their times; at equal times reports go first, the lower
channel first. The answers reach the CUs and the dispatcher a lookahead later.
"""

from sim.hw.bits import trailing_zeros
from sim.hw.calendar import WORD_BITS, WORD_SOURCES, calendar_add, slot_sources
from sim.hw.cu import wake_stores
from sim.hw.cu_record import ASKS, GRANTED, MAX_WORKGROUPS, WAITS
from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_pop
from sim.hw.request import NEVER
from sim.hw.tracker import tracker_grant
from sim.hw.tracker_count import tracker_count
from sim.machine.engine_record import WORKGROUP_ASKS
from tracer.compile.jit import compiled


@compiled(apart=True)
def run_tracker(node, begin_ps, end_ps):
    """Count the reported requests and serve the workgroups that ask for an entry.

    Reads: node.engine, node.news. Writes: node.calendars, node.cu_told_ps, node.cus, node.dispatch, node.fifos,
    node.output, node.warps.
    """
    calendar, first_fifo = node.calendars[0], node.engine[0].first_note_fifo
    sources = len(node.channels) + 1  # the last one is the port of arrivals
    base_ps = begin_ps // calendar.period_ps * calendar.period_ps
    for source in range(sources):
        head_ps = fifo_head_ps(node.fifos[first_fifo + source], node.pool)
        if head_ps < NEVER:
            calendar_add(calendar, source, head_ps - base_ps)
    words = (sources + WORD_SOURCES - 1) >> WORD_BITS
    ask_ps = _next_ask(node)[2]
    slot = 0
    while calendar.busy >> slot != 0:
        slot_end_ps = base_ps + (slot + 1) * calendar.period_ps
        for step in range(words + 1):
            word, bits = slot_sources(calendar, slot, 0, step, words)
            while bits != 0:
                source = (word << WORD_BITS) + trailing_zeros(bits)
                bits &= bits - 1
                notes = node.fifos[first_fifo + source]
                head_ps = fifo_head_ps(notes, node.pool)
                while head_ps < slot_end_ps:
                    if ask_ps < head_ps:
                        ask_ps = serve_asks(node, head_ps)
                    _count(node, fifo_head(notes, node.pool), head_ps)
                    fifo_pop(notes)
                    head_ps = fifo_head_ps(notes, node.pool)
                if head_ps < NEVER:
                    calendar_add(calendar, source, head_ps - base_ps)
        slot += 1
    calendar.busy = 0
    if ask_ps < NEVER:
        serve_asks(node, NEVER)


@compiled
def _count(node, request, now_ps):
    out = node.output
    arrays = (out.tiles, out.wavefronts, out.gates, out.released, out.chunk_left)
    tracker = out.tracker[0]
    if tracker_count(tracker, out.space[0], *arrays, request, now_ps):
        _wake_gated(node, now_ps)
    if tracker.freed > 0:
        if tracker.waiting > 0:
            _serve_waiting(node, tracker.freed - 1, now_ps)
        tracker.freed = 0


@compiled
def _wake_gated(node, now_ps):
    """A gate has opened: wake the dispatch queues that wait for a gate."""
    for queue in range(len(node.dispatch)):
        dispatch = node.dispatch[queue]
        if dispatch.gated == 1:
            dispatch.wake_ps = min(dispatch.wake_ps, now_ps + dispatch.lookahead_ps)


@compiled
def _next_ask(node):
    """The workgroup that asked first among those that the Tracker has not seen: (CU, place, time); time NEVER: none."""
    chosen, chosen_place = -1, -1
    chosen_ps = NEVER
    for c in range(len(node.cus)):
        if node.news[c] & WORKGROUP_ASKS == 0 or node.cus[c].asking == 0:
            continue
        cu = node.cus[c]
        for place in range(MAX_WORKGROUPS):
            resident = cu.resident[place]
            if resident.asks == ASKS and resident.asked_ps < chosen_ps:
                chosen, chosen_place, chosen_ps = c, place, resident.asked_ps
    return chosen, chosen_place, chosen_ps


@compiled
def serve_asks(node, before_ps):
    """Serve the workgroups that asked before before_ps. Returns when the next one asked, NEVER if there is none.

    Reads: node.engine. Writes: node.cu_wake_ps, node.cus, node.output, node.warps.
    """
    c, place, asked_ps = _next_ask(node)
    while asked_ps < before_ps:
        node.cus[c].asking -= 1
        if not _granted(node, c, place, asked_ps):
            node.cus[c].resident[place].asks = WAITS
            node.output.tracker[0].waiting += 1
            node.output.tracker[0].stalls += 1
        c, place, asked_ps = _next_ask(node)
    return asked_ps


@compiled
def _granted(node, c, place, now_ps):
    """Give the workgroup an entry for its tile at now_ps, if one is free. Returns False if none is."""
    out = node.output
    resident = node.cus[c].resident[place]
    if not tracker_grant(out.tracker[0], out.tiles, resident.asked_tag, now_ps + node.engine[0].lookahead_ps):
        return False
    resident.asks = GRANTED
    granted_ps = out.tiles[resident.asked_tag].granted_ps
    wake_stores(node.cus[c], node.warps[c], place, granted_ps)
    node.cu_told_ps[c] = min(node.cu_told_ps[c], granted_ps)
    return True


@compiled
def _serve_waiting(node, freed_set, now_ps):
    """An entry of a set is free: give it to a workgroup that waits for the set, to the one that asked first."""
    sets = node.output.tracker[0].sets
    after_ps, after = -1, -1
    while True:
        chosen_ps, chosen = NEVER, -1
        for number in range(len(node.cus) * MAX_WORKGROUPS):
            resident = node.cus[number // MAX_WORKGROUPS].resident[number % MAX_WORKGROUPS]
            asked_ps = resident.asked_ps
            is_next = asked_ps > after_ps or (asked_ps == after_ps and number > after)
            if resident.asks == WAITS and is_next and asked_ps < chosen_ps and resident.asked_tag % sets == freed_set:
                chosen_ps, chosen = asked_ps, number
        if chosen < 0:
            return
        if _granted(node, chosen // MAX_WORKGROUPS, chosen % MAX_WORKGROUPS, now_ps):
            node.output.tracker[0].waiting -= 1
        after_ps, after = chosen_ps, chosen
