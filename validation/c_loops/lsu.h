/* Load/store unit of one CU, as sim/hw/lsu.py: loads through L1. Left out: stores, atomics, collectives. */

#pragma once

#include "coalesce.h"
#include "l1.h"
#include "warp.h"

static inline int lsu_idle(const struct lsu *lsu, int64_t now_ps)
{
    return lsu->next_line == lsu->lines && lsu->free_ps <= now_ps && lsu->loads_used < lsu->loads;
}

static inline void lsu_enqueue(struct lsu *lsu, int64_t w) { lsu->queue[lsu->queue_tail++ & (MAX_WARPS - 1)] = w; }

static inline int64_t canonical(int64_t line)
{
    const int64_t half = (int64_t)1 << (ADDRESS_BITS - 1);
    return ((line + half) & (2 * half - 1)) - half;
}

static inline void lsu_start(struct lsu *lsu, struct warps *warps, int64_t w, const struct event *event, int64_t base,
                             const uint64_t *addresses, int64_t tag, int64_t now_ps)
{
    lsu->lines = coalesce_at(event, base, addresses, lsu->line, (uint8_t *)lsu->sectors, (uint8_t *)lsu->full);
    for (int64_t i = 0; i < lsu->lines; i++)
        lsu->line[i] = canonical(lsu->line[i]);
    lsu->next_line = lsu->link = lsu->contributors = 0;
    lsu->tag = tag;
    lsu->cache = event->cache;
    lsu->op = OP_READ;
    lsu->stream = STREAM_COMPUTE_READ;
    lsu->load = lsu->free_load;
    struct load *load = &lsu->load_table[lsu->load];
    lsu->free_load = load->next;
    lsu->loads_used++;
    load->warp = w;
    load->slot = event->slot;
    load->answers = 0;
    load->open = 1;
    load->done_ps = now_ps;
    slot_take(&warps->warp[w], event->slot);
    lsu->free_ps = now_ps;
}

/* How long the warp had slept that this wakes, or 0; the same of the functions that follow. */
static inline int64_t finish_load(struct lsu *lsu, struct warps *warps, int64_t number)
{
    struct load *load = &lsu->load_table[number];
    int64_t slept_ps = slot_done(warps, load->warp, load->slot, load->done_ps);
    load->next = lsu->free_load;
    lsu->free_load = number;
    lsu->loads_used--;
    return slept_ps >= 0 ? load->done_ps - slept_ps : 0;
}

static inline int64_t lsu_answer(struct lsu *lsu, struct l1 *l1, struct cache_set *sets, struct warps *warps, int64_t e,
                                 int64_t now_ps)
{
    const struct miss_entry *entry = &l1->entry[e];
    int64_t stalled_ps = 0;
    l1_fill(l1, sets, entry);
    int number = entry->load, joiner = entry->joiners;
    while (number >= 0) {
        struct load *load = &lsu->load_table[number];
        load->answers--;
        load->done_ps = max(load->done_ps, now_ps);
        if (load->answers == 0 && load->open == 0)
            stalled_ps += finish_load(lsu, warps, number);
        number = -1;
        if (joiner >= 0) {
            number = l1->joiner_load[joiner];
            joiner = l1->joiner_next[joiner];
        }
    }
    l1_close(l1, e);
    return stalled_ps;
}

static inline void send(const struct lsu *lsu, struct fifo *port, struct request *pool, int64_t entry, int64_t line,
                        int sectors, int64_t leave_ps, int64_t now_ps)
{
    struct request *request = fifo_push(port, pool);
    request->line = line;
    request->ready_ps = leave_ps;
    request->born_ps = now_ps;
    request->tag = lsu->tag;
    request->load = entry;
    request->source = lsu->cu;
    request->contributors = lsu->contributors;
    request->link = lsu->link;
    request->wavefront = lsu->wavefront;
    request->sectors = request->full = sectors;
    request->op = lsu->op;
    request->stream = lsu->stream;
    request->cache = lsu->cache;
}

static inline void load_line(struct lsu *lsu, struct l1 *l1, struct cache_set *sets, struct fifo *port,
                             struct request *pool, int64_t i, int64_t now_ps)
{
    int64_t line = lsu->line[i];
    int sectors = lsu->sectors[i], hit = l1_hit_sectors(l1, sets, line, sectors), missing = sectors & ~hit;
    struct load *load = &lsu->load_table[lsu->load];
    l1->read_sectors += SECTORS_IN[sectors & 15];
    if (hit != 0) {
        l1->read_hit_sectors += SECTORS_IN[hit & 15];
        load->done_ps = max(load->done_ps, lsu->free_ps + l1->latency_ps);
    }
    if (missing != 0 && l1->entries_used > 0) {
        int joined = l1_join(l1, line, missing, lsu->load, &load->answers);
        l1->read_merged_sectors += SECTORS_IN[joined & 15];
        missing &= ~joined;
    }
    if (missing != 0) {
        load->answers++;
        int64_t entry = l1_miss(l1, line, missing, lsu->load);
        send(lsu, port, pool, entry, line, missing, lsu->free_ps + l1->latency_ps, now_ps);
    }
}

static inline int64_t lsu_advance(struct lsu *lsu, struct l1 *l1, struct cache_set *sets, struct fifo *fifos,
                                  struct request *pool, struct warps *warps, int64_t now_ps)
{
    if (lsu->next_line == lsu->lines && lsu->load < 0)
        return 0;
    struct fifo *port = &fifos[lsu->port];
    lsu->free_ps = max(lsu->free_ps, now_ps);
    for (int64_t i = lsu->next_line; i < lsu->lines; i++)
        l1_expect(l1, sets, lsu->line[i]);
    while (lsu->next_line < lsu->lines) {
        if (fifo_full(port) || !l1_has_room(l1)) {
            if (lsu->blocked_since_ps < 0)
                lsu->blocked_since_ps = now_ps;
            return 0;
        }
        load_line(lsu, l1, sets, port, pool, lsu->next_line, now_ps);
        lsu->line_requests++;
        lsu->next_line++;
        lsu->free_ps += lsu->line_ps;
    }
    if (lsu->blocked_since_ps >= 0) {
        lsu->blocked_ps += now_ps - lsu->blocked_since_ps;
        lsu->blocked_since_ps = -1;
    }
    struct load *load = &lsu->load_table[lsu->load];
    load->open = 0;
    int64_t stalled_ps = load->answers == 0 ? finish_load(lsu, warps, lsu->load) : 0;
    lsu->load = -1;
    return stalled_ps;
}

static inline int64_t lsu_wake_ps(const struct lsu *lsu)
{
    int busy = lsu->queue_head == lsu->queue_tail || lsu->next_line < lsu->lines || lsu->loads_used >= lsu->loads;
    return busy ? NEVER : lsu->free_ps;
}
