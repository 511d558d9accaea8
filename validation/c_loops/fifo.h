/* Bounded fifos of requests, as sim/hw/fifo.py. `records.h` is made from the numpy record types
 * when this is compiled (validation/c_records.py). */

#pragma once

#include "records.h"

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t fifo_slot(const struct fifo *fifo, int64_t number)
{
    return fifo->first + ((number - fifo->origin) & fifo->mask);
}

static inline int64_t fifo_fill(const struct fifo *fifo) { return fifo->tail - fifo->head; }

static inline int fifo_full(const struct fifo *fifo) { return fifo->tail - fifo->head >= fifo->limit; }

static inline struct request *fifo_head(const struct fifo *fifo, struct request *pool)
{
    return &pool[fifo_slot(fifo, fifo->head)];
}

static inline int64_t fifo_head_ps(const struct fifo *fifo, struct request *pool)
{
    return fifo->tail == fifo->head ? NEVER : fifo_head(fifo, pool)->ready_ps;
}

static inline struct request *fifo_push(struct fifo *fifo, struct request *pool)
{
    if (fifo->tail == fifo->head)
        fifo->origin = fifo->tail;
    struct request *slot = &pool[fifo_slot(fifo, fifo->tail++)];
    fifo->fill_max = max(fifo->fill_max, fifo_fill(fifo));
    return slot;
}

static inline struct request *fifo_push_copy(struct fifo *fifo, struct request *pool, const struct request *request,
                                             int64_t ready_ps)
{
    struct request *slot = fifo_push(fifo, pool);
    *slot = *request;
    slot->ready_ps = ready_ps;
    return slot;
}
