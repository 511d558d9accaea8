/* One HBM channel as sim/hw/hbm*.py: reads and writes, FR-FCFS over lists per bank, open page.
 * What the benchmark's streams do not use is left out, and refused at the start: refresh, near-memory updates, age
 * limit, closed page, policies other than FCFS, notes to the Tracker, the command log. */

#include "hbm_scheduler.h"

static int oldest_stream(const struct channel *channel)
{
    int chosen = -1;
    int64_t oldest_ps = NEVER;
    for (int stream = 0; stream < STREAMS; stream++)
        if (channel->head_ps[stream] < oldest_ps) {
            chosen = stream;
            oldest_ps = channel->head_ps[stream];
        }
    return chosen;
}

static void hold_back(struct channel *channel, struct fifo *fifos, struct request *pool, int op)
{
    for (int stream = 0; stream < STREAMS; stream++)
        if (channel->head_ps[stream] < NEVER) {
            int other = fifo_head(&fifos[channel->in_fifo[stream]], pool)->op;
            if (channel->split == 0 || (other == OP_READ) == (op == OP_READ))
                channel->head_ps[stream] = NEVER;
        }
}

static int64_t accept(struct channel *channel, struct fifo *fifos, struct request *pool, int64_t now_ps)
{
    int64_t arrival_ps = NEVER;
    int waiting = 0;
    for (int stream = 0; stream < STREAMS; stream++) {
        int64_t head_ps = fifo_head_ps(&fifos[channel->in_fifo[stream]], pool);
        if (head_ps > now_ps) {
            arrival_ps = min(arrival_ps, head_ps);
            head_ps = NEVER;
        } else {
            waiting++;
        }
        channel->head_ps[stream] = head_ps;
    }
    while (waiting > 0) {
        int stream = oldest_stream(channel);
        if (stream < 0)
            return arrival_ps;
        struct fifo *fifo = &fifos[channel->in_fifo[stream]];
        const struct request *request = fifo_head(fifo, pool);
        if (!fits(channel, request)) {
            hold_back(channel, fifos, pool, request->op);
        } else if (conflicts(channel, request)) {
            channel->head_ps[stream] = NEVER;
        } else {
            enqueue(channel, request, now_ps);
            fifo->head++;
            channel->last_stream = stream;
            int64_t head_ps = fifo_head_ps(fifo, pool);
            if (head_ps > now_ps) {
                arrival_ps = min(arrival_ps, head_ps);
                head_ps = NEVER;
            }
            channel->head_ps[stream] = head_ps;
        }
    }
    return arrival_ps;
}

static int read_held(const struct channel *channel, struct fifo *fifos, struct request *pool, int64_t now_ps)
{
    if (channel->queued[WRITES] == 0)
        return 0;
    for (int stream = 0; stream < STREAMS; stream++) {
        const struct fifo *fifo = &fifos[channel->in_fifo[stream]];
        if (fifo_head_ps(fifo, pool) <= now_ps) {
            const struct request *request = fifo_head(fifo, pool);
            if (request->op == OP_READ && conflicts(channel, request))
                return 1;
        }
    }
    return 0;
}

static void account_occupancy(struct channel *channel, int64_t now_ps)
{
    int64_t elapsed_ps = now_ps - channel->accounted_ps;
    if (elapsed_ps > 0) {
        for (int stream = 0; stream < STREAMS; stream++)
            channel->occupancy[stream] += channel->queued_stream[stream] * elapsed_ps;
        channel->accounted_ps = now_ps;
    }
}

static int64_t channel_step(struct channel *channel, struct fifo *fifos, struct request *pool, int64_t now_ps)
{
    int64_t edge_ps = (now_ps + channel->period_ps - 1) / channel->period_ps * channel->period_ps;
    if (edge_ps > now_ps)
        return edge_ps;
    account_occupancy(channel, now_ps);
    int64_t wake_ps = accept(channel, fifos, pool, now_ps);
    if (channel->free_atoms == MAX_ATOMS)
        return wake_ps;
    if (channel->split)
        channel->read_held = read_held(channel, fifos, pool, now_ps);
    serve(channel, fifo_full(&fifos[channel->out_fifo]));
    issue_column(channel, fifos, pool, now_ps);
    issue_row(channel, now_ps);
    wake_ps = min(min(wake_ps, channel->column_wake_ps), min(channel->row_wake_ps, channel->age_check_ps));
    return max(now_ps + channel->period_ps, wake_ps);
}

/* 0, or -1 for a channel or stream with something that this loop leaves out. */
int64_t hbm_channel_loop(struct channel *channel, int64_t channel_count, struct fifo *fifos, int64_t fifo_count,
                         struct request *pool, int64_t pool_count, const uint8_t *op, int64_t requests,
                         const int64_t *address, int64_t address_count, const int64_t *earliest_ps,
                         int64_t earliest_count, int64_t *accepted_ps, int64_t accepted_count, int64_t *done_ps,
                         int64_t done_count, const struct log *log, int64_t log_count)
{
    if (channel->tREFI_ps || channel->page != PAGE_OPEN || channel->age_limit_ps || channel->arbiter != ARBITER_FCFS
        || channel->note_fifo >= 0 || channel->count_served || log_count)
        return -1;
    struct fifo *entry = &fifos[channel->in_fifo[0]], *answers = &fifos[channel->out_fifo];
    int64_t pushed = 0, accepted = 0, now_ps = 0;
    while (1) {
        while (pushed < requests && fifo_fill(entry) < entry->limit) {
            if (op[pushed] != OP_READ && op[pushed] != OP_WRITE)
                return -1;
            struct request *request = fifo_push(entry, pool);
            request->line = address[pushed] / LINE_BYTES * LINE_BYTES;
            request->sectors = request->full = address[pushed] & ATOM_BYTES ? 12 : 3;
            request->op = op[pushed];
            request->stream = op[pushed] == OP_READ ? STREAM_COMPUTE_READ : STREAM_COMPUTE_WRITE;
            request->tag = pushed;
            request->ready_ps = request->born_ps = earliest_ps[pushed];
            pushed++;
        }
        int64_t wake_ps = channel_step(channel, fifos, pool, now_ps);
        while (accepted < entry->head)
            accepted_ps[accepted++] = now_ps;
        while (fifo_fill(answers) > 0) {
            const struct request *answer = fifo_head(answers, pool);
            done_ps[answer->tag] = answer->ready_ps;
            answers->head++;
        }
        if (wake_ps == NEVER) {
            account_occupancy(channel, channel->bus_end_ps);
            return 0;
        }
        now_ps = wake_ps;
    }
}
