/* One L2 bank as sim/hw/l2.py: reads that hit, with the tests that every request goes through.
 * What such reads do not use is left out: misses, writes, atomics, uncached requests, the flush, new touch numbers. */

#include "fifo.h"
#include "tags.h"

static inline int has_room(const struct l2_bank *bank, const struct fifo *fifos)
{
    for (int stream = 0; stream < STREAMS; stream++) {
        const struct fifo *fifo = &fifos[bank->dram[stream]];
        if (fifo->limit - fifo_fill(fifo) < 2)
            return 0;
    }
    return bank->misses_used < bank->misses && bank->free_waiter >= 0 && bank->reads_out < fifos[bank->fills].limit
        && !fifo_full(&fifos[bank->hits]) && !fifo_full(&fifos[bank->late]);
}

/* 1: done, 0: the bank must block, -1: a request that this loop leaves out. */
static inline int serve(struct l2_bank *bank, struct cache_set *sets, const struct request *waiters, struct fifo *fifos,
                        struct request *pool, const struct request *request, int64_t now_ps)
{
    if (!has_room(bank, fifos))
        return 0;
    if (request->op != OP_READ || request->cache == CACHE_UNCACHED)
        return -1;
    struct cache_set *set = &sets[bank->first_set + request->cache_set];
    int64_t way = find_way(set, bank->ways, request->line);
    if (way < 0)
        return -1;
    int64_t waiting = 0;
    if (set->way[way].pending)
        for (int64_t w = set->waiter[way]; w >= 0; w = waiters[w].next)
            waiting++;
    if (waiting >= bank->merges)
        return 0;
    if (!touch(set, bank->ways, way))
        return -1;
    int wanted = request->sectors, hit = wanted & set->way[way].valid;
    int merged = wanted & set->way[way].pending & ~hit & 15, missing = wanted & ~(hit | merged) & 15;
    bank->read_sectors += SECTORS_IN[hit | merged | missing];
    bank->read_hit_sectors += SECTORS_IN[hit];
    bank->read_merged_sectors += SECTORS_IN[merged];
    bank->read_miss_sectors += SECTORS_IN[missing];
    if (hit != wanted)
        return -1;
    fifo_push_copy(&fifos[bank->hits], pool, request, now_ps + bank->latency_ps);
    return 1;
}

/* When the bank can do something next, -1 for a request that this loop leaves out. */
static int64_t l2_step(struct l2_bank *bank, struct cache_set *sets, const struct request *waiters, struct fifo *fifos,
                       struct request *pool, int64_t now_ps)
{
    struct fifo *requests = &fifos[bank->requests];
    int64_t wake_ps = fifo_head_ps(&fifos[bank->fills], pool);
    if (wake_ps <= now_ps || bank->flush_set >= 0)
        return -1;
    bank->blocked = 0;
    if (max(fifo_head_ps(requests, pool), bank->next_ps) <= now_ps) {
        int served = serve(bank, sets, waiters, fifos, pool, fifo_head(requests, pool), now_ps);
        if (served < 0)
            return -1;
        if (served) {
            requests->head++;
            bank->requests_served++;
            bank->next_ps = now_ps + bank->period_ps;
            bank->last_request_ps = now_ps;
            if (fifo_fill(requests) > AHEAD)
                expect(&sets[bank->first_set + pool[fifo_slot(requests, requests->head + AHEAD)].cache_set], bank->ways);
            if (bank->blocked_since_ps >= 0) {
                bank->blocked_ps += now_ps - bank->blocked_since_ps;
                bank->blocked_since_ps = -1;
            }
        } else {
            bank->blocked = 1;
            if (bank->blocked_since_ps < 0)
                bank->blocked_since_ps = now_ps;
            return wake_ps;
        }
    }
    int64_t head_ps = fifo_head_ps(requests, pool);
    return head_ps < NEVER ? min(wake_ps, max(head_ps, bank->next_ps)) : wake_ps;
}

int64_t l2_bank_loop(struct l2_bank *bank, int64_t bank_count, struct cache_set *sets, int64_t set_count,
                     struct request *waiters, int64_t waiter_count, struct fifo *fifos, int64_t fifo_count,
                     struct request *pool, int64_t pool_count, int64_t requests, int64_t lines)
{
    struct fifo *inbox = &fifos[bank->requests], *hits = &fifos[bank->hits];
    int64_t pushed = 0, answered = 0, now_ps = 0;
    while (answered < requests) {
        while (pushed < requests && fifo_fill(inbox) < inbox->limit) {
            struct request *request = fifo_push(inbox, pool);
            request->line = pushed % lines * LINE_BYTES;
            request->cache_set = pushed % lines % bank->sets;
            request->sectors = request->full = 15;
            request->op = OP_READ;
            request->ready_ps = now_ps;
            pushed++;
        }
        int64_t wake_ps = l2_step(bank, sets, waiters, fifos, pool, now_ps);
        if (wake_ps < 0)
            return -1;
        while (fifo_fill(hits) > 0) {
            answered += fifo_head(hits, pool)->sectors & 1;
            hits->head++;
        }
        now_ps = wake_ps < NEVER ? wake_ps : now_ps + bank->period_ps;
    }
    return answered;
}
