/* One compute unit as sim/hw/cu.py, pipes.py and barrier.py: warps that load, compute and exit.
 * Left out: stores, atomics, accesses that bypass L1, shared memory, barriers, the tensor pipe, collectives. */

#include "lsu.h"

/* What a CU works with. */
struct unit {
    struct cu *cu;
    struct lsu *lsu;
    struct l1 *l1;
    struct cache_set *sets;
    struct fifo *fifos, *answers;
    struct request *pool;
    struct warps *warps;
    const struct event *events;
    int64_t slab_events;
    const uint64_t *addresses;
    int64_t slab_addresses;
};

static inline const struct event *next_event(const struct unit *unit, const struct warp *warp)
{
    return &unit->events[warp->slab * unit->slab_events + warp->event];
}

static inline int is_memory(const struct event *event) { return event->kind == KIND_LOAD && event->mask != 0; }

static inline int left_out(const struct cu *cu, const struct warp *warp, const struct event *event)
{
    switch (event->kind) {
    case KIND_LOAD:
        return event->space == SPACE_SHARED || (event->cache != CACHE_DEFAULT && event->cache != CACHE_STREAM)
            || cu->resident[warp->workgroup].comm;
    case KIND_COMPUTE:
        return event->pipe == PIPE_TENSOR;
    default:
        return event->kind != KIND_EXIT;
    }
}

static inline int64_t book_issue(struct cu *cu, int64_t scheduler, const struct event *event, int64_t now_ps)
{
    int64_t busy_ps = event->count * cu->issue_ps;
    cu->issue_free_ps[scheduler] = now_ps + busy_ps;
    cu->issue_busy_ps += busy_ps;
    cu->warp_instructions += event->count;
    cu->events++;
    return now_ps + busy_ps;
}

static inline int64_t compute(struct cu *cu, int64_t scheduler, const struct event *event, int64_t now_ps)
{
    int64_t *pipe_free_ps = &cu->pipe_free_ps[scheduler][event->pipe];
    int64_t busy_ps = event->count * cu->pipe_ps[event->pipe], start_ps = max(now_ps, *pipe_free_ps);
    *pipe_free_ps = start_ps + busy_ps;
    int64_t free_ps = book_issue(cu, scheduler, event, now_ps);
    return max(free_ps, start_ps + max(busy_ps, event->cycles * cu->period_ps));
}

/* 0: a barrier waits for the warps that are left. */
static int warp_exit(struct cu *cu, struct warps *warps, int64_t w, int64_t now_ps)
{
    struct resident *resident = &cu->resident[warps->warp[w].workgroup];
    warp_sleep(warps, w, IDLE, now_ps);
    resident->alive--;
    for (int number = 0; number < BARRIERS; number++)
        if (resident->alive > 0 && resident->arrived[number] >= resident->alive)
            return 0;
    if (resident->alive == 0) {
        cu->ended_tag[cu->ended] = resident->tag;
        cu->ended_started_ps[cu->ended] = resident->started_ps;
        cu->ended_ps[cu->ended] = now_ps;
        resident->tag = -1;
        cu->residents--;
        cu->ended_slab[cu->ended] = resident->slab;
        cu->ended_queue[cu->ended] = resident->queue;
        cu->ended++;
        cu->workgroups++;
        cu->last_exit_ps = now_ps;
    }
    return 1;
}

static inline int64_t advance(const struct unit *unit, int64_t now_ps)
{
    return lsu_advance(unit->lsu, unit->l1, unit->sets, unit->fifos, unit->pool, unit->warps, now_ps);
}

static inline void start_memory(const struct unit *unit, int64_t w, const struct event *event, int64_t now_ps)
{
    const struct warp *warp = &unit->warps->warp[w];
    const struct resident *resident = &unit->cu->resident[warp->workgroup];
    const uint64_t *addresses = unit->addresses + warp->slab * unit->slab_addresses;
    unit->lsu->wavefront = w - resident->first_warp;
    lsu_start(unit->lsu, unit->warps, w, event, event->base + resident->shift_bytes[event->array], addresses,
              resident->tag, now_ps);
    unit->cu->slot_stall_ps += advance(unit, now_ps);
}

/* 0: an event that this loop leaves out; the same of the functions that follow. */
static inline int execute(const struct unit *unit, int64_t w, const struct event *event, int64_t now_ps)
{
    struct cu *cu = unit->cu;
    struct warp *warp = &unit->warps->warp[w];
    if (left_out(cu, warp, event))
        return 0;
    warp->event++;
    __builtin_prefetch(event + 1);
    if (event->kind == KIND_COMPUTE) {
        warp_ready(unit->warps, w, compute(cu, w % cu->schedulers, event, now_ps));
        return 1;
    }
    int64_t free_ps = book_issue(cu, w % cu->schedulers, event, now_ps);
    if (event->kind == KIND_EXIT)
        return warp_exit(cu, unit->warps, w, now_ps);
    warp_ready(unit->warps, w, free_ps);
    if (is_memory(event))
        start_memory(unit, w, event, now_ps);
    return 1;
}

static inline int issue(const struct unit *unit, int64_t w, int64_t now_ps)
{
    struct warps *warps = unit->warps;
    struct warp *warp = &warps->warp[w];
    const struct event *event = next_event(unit, warp);
    uint64_t wait = event->kind == KIND_EXIT ? UINT64_MAX : event->wait;
    if (warp->pending & wait) {
        int64_t clear_ps = slots_clear_ps(warp, wait, now_ps);
        if (clear_ps >= NEVER) {
            warp->wait = wait;
            warp_sleep(warps, w, ON_SLOTS, now_ps);
            return 1;
        }
        if (clear_ps > now_ps) {
            warp_ready(warps, w, clear_ps);
            return 1;
        }
    }
    int64_t issue_free_ps = unit->cu->issue_free_ps[w % unit->cu->schedulers];
    if (issue_free_ps > now_ps) {
        warp_ready(warps, w, issue_free_ps);
        return 1;
    }
    if (is_memory(event) && (unit->lsu->queue_head != unit->lsu->queue_tail || !lsu_idle(unit->lsu, now_ps))) {
        lsu_enqueue(unit->lsu, w);
        warp_sleep(warps, w, ON_LSU, now_ps);
        return 1;
    }
    return execute(unit, w, event, now_ps);
}

static inline int serve_queue(const struct unit *unit, int64_t now_ps)
{
    struct lsu *lsu = unit->lsu;
    while (lsu->queue_head != lsu->queue_tail && lsu_idle(lsu, now_ps)) {
        int64_t w = lsu->queue[lsu->queue_head++ & (MAX_WARPS - 1)];
        if (!execute(unit, w, next_event(unit, &unit->warps->warp[w]), now_ps))
            return 0;
    }
    return 1;
}

static inline void take_answer(const struct unit *unit, int64_t now_ps)
{
    int64_t entry = fifo_head(unit->answers, unit->pool)->load;
    unit->answers->head++;
    if (fifo_fill(unit->answers) > 1) {
        const struct request *following = &unit->pool[fifo_slot(unit->answers, unit->answers->head + 1)];
        __builtin_prefetch(&unit->l1->entry[following->load]);
        l1_expect(unit->l1, unit->sets, following->line);
    }
    unit->cu->slot_stall_ps += lsu_answer(unit->lsu, unit->l1, unit->sets, unit->warps, entry, now_ps);
}

/* Answers that come before anything else; returns when the first other thing is due. */
static inline int64_t take_answers(const struct unit *unit, int64_t now_ps, int64_t end_ps)
{
    const struct lsu *lsu = unit->lsu;
    int64_t other_ps = min(next_issue_ps(unit->warps), lsu_wake_ps(lsu));
    while (1) {
        int64_t answer_ps = fifo_head_ps(unit->answers, unit->pool);
        if (answer_ps > other_ps || answer_ps >= end_ps)
            return min(max(other_ps, now_ps), answer_ps);
        take_answer(unit, answer_ps);
        if (lsu->blocked_since_ps >= 0 || lsu->loads_used + 1 == lsu->loads)
            return answer_ps;
        other_ps = min(other_ps, next_issue_ps(unit->warps));
    }
}

/* When the CU can do something next, -1 for an event that this loop leaves out. */
static int64_t cu_step(const struct unit *unit, int64_t now_ps, int64_t end_ps)
{
    if (unit->lsu->blocked_since_ps < 0) {
        now_ps = take_answers(unit, now_ps, end_ps);
        if (now_ps >= end_ps)
            return now_ps;
    }
    while (fifo_head_ps(unit->answers, unit->pool) <= now_ps)
        take_answer(unit, now_ps);
    unit->cu->slot_stall_ps += advance(unit, now_ps);
    if (!serve_queue(unit, now_ps))
        return -1;
    int64_t key = next_warp(unit->warps);
    while (key >> WARP_BITS <= now_ps) {
        if (!issue(unit, key & (MAX_WARPS - 1), now_ps))
            return -1;
        key = next_warp(unit->warps);
    }
    int64_t answer_ps = fifo_head_ps(unit->answers, unit->pool);
    return min(answer_ps, min(lsu_wake_ps(unit->lsu), next_issue_ps(unit->warps)));
}

int64_t cu_loop(struct cu *cu, int64_t cu_count, struct lsu *lsu, int64_t lsu_count, struct l1 *l1, int64_t l1_count,
                struct cache_set *sets, int64_t set_count, struct fifo *fifos, int64_t fifo_count, struct request *pool,
                int64_t pool_count, struct warps *warps, int64_t warps_count, const struct event *events, int64_t slabs,
                int64_t slab_events, const uint64_t *addresses, int64_t address_slabs, int64_t slab_addresses,
                int64_t window_ps, int64_t memory_ps)
{
    struct fifo *port = &fifos[lsu->port], *answers = &fifos[cu->answers];
    const struct unit unit = {cu, lsu, l1, sets, fifos, answers, pool, warps, events, slab_events, addresses,
                              slab_addresses};
    int64_t now_ps = 0;
    if (l1->ways == 0 || l1->entries_used > 0 || lsu->next_line < lsu->lines) /* no L1, or at work already */
        return -1;
    while (cu->residents > 0) {
        int64_t end_ps = now_ps + window_ps;
        while (now_ps < end_ps) {
            now_ps = cu_step(&unit, now_ps, end_ps);
            if (now_ps < 0)
                return -1;
        }
        for (; fifo_fill(port) > 0; port->head++) {
            const struct request *request = fifo_head(port, pool);
            fifo_push_copy(answers, pool, request, request->ready_ps + memory_ps);
        }
        now_ps = min(now_ps, fifo_head_ps(answers, pool));
        if (lsu->blocked_since_ps >= 0)
            now_ps = min(now_ps, end_ps);
    }
    return lsu->line_requests;
}
