/* The requests of one time window through the crossbar, as sim/hw/noc.py and sim/hw/address_map.py.
 * Left out: stores that leave the GPU over a link. */

#include "address_map.h"
#include "fifo.h"

static int64_t spread(int64_t value, int64_t places, int64_t index)
{
    if (index != INDEX_HASH)
        return remainder_of(value, places);
    int digit = 1;
    while (((int64_t)1 << digit) < places)
        digit++;
    int64_t folded = 0;
    for (int64_t rest = quotient(value, places); rest > 0; rest >>= digit)
        folded ^= rest & (((int64_t)1 << digit) - 1);
    return remainder_of(value + folded, places);
}

static int64_t port_ps(const struct noc *noc, int64_t data_bytes, int64_t bytes_per_clk)
{
    return quotient(data_bytes + bytes_per_clk - 1, bytes_per_clk) * noc->period_ps;
}

static int64_t sort(struct noc *noc, const struct fifo *fifos, struct request *pool, int64_t first_fifo, int64_t sources,
                    int64_t begin_ps, int64_t end_ps)
{
    int64_t first = noc->turn % sources, packets = 0;
    int64_t slots_per_ps = ((int64_t)SLOTS << SCALE_BITS) / (end_ps - begin_ps) + 1;
    for (int slot = 0; slot < SLOTS; slot++)
        noc->slot_first[slot] = -1;
    for (int64_t k = 0; k < sources; k++) {
        int64_t source = first + k >= sources ? first + k - sources : first + k;
        const struct fifo *fifo = &fifos[first_fifo + source];
        for (int64_t position = fifo->head; position != fifo->tail && packets < MAX_PACKETS; position++) {
            int64_t ready_ps = pool[fifo_slot(fifo, position)].ready_ps;
            if (ready_ps >= end_ps)
                break;
            int64_t slot = (max(ready_ps - begin_ps, 0) * slots_per_ps) >> SCALE_BITS;
            if (noc->slot_first[slot] < 0)
                noc->slot_first[slot] = packets;
            else
                noc->packet_next[noc->slot_last[slot]] = packets;
            noc->slot_last[slot] = packets;
            noc->packet_next[packets] = -1;
            noc->packet_source[packets] = source;
            packets++;
        }
    }
    return packets;
}

/* 1: sent, 0: the bank is full, -1: a store for another GPU. */
static int send(struct noc *noc, int64_t c, struct fifo *fifos, struct request *pool, int64_t *bank_wake_ps)
{
    struct fifo *port = &fifos[noc->first_port_fifo + c];
    struct request *request = fifo_head(port, pool);
    if (request->link > 0)
        return -1;
    int64_t line = request->line, interleave = noc->interleave_bytes, slices = quotient(noc->banks, noc->channels);
    int64_t local = quotient(line, interleave * noc->channels) * interleave + remainder_of(line, interleave);
    int64_t local_line = local / LINE_BYTES;
    int64_t bank = spread(quotient(line, interleave), noc->channels, noc->index) * slices
        + spread(local_line, slices, noc->index);
    struct fifo *target = &fifos[noc->first_request_fifo + bank];
    if (fifo_full(target)) {
        noc->refused++;
        return 0;
    }
    int64_t volume = noc->header_bytes;
    if (request->op != OP_READ)
        volume += __builtin_popcount(request->sectors & 15) * SECTOR_BYTES;
    noc->request_packets++;
    noc->request_bytes += volume;
    int64_t left_ps = max(noc->cu_out_ps[c], request->ready_ps) + port_ps(noc, volume, noc->request_bytes_per_clk);
    noc->cu_out_ps[c] = left_ps;
    int64_t in_ps = max(noc->bank_in_ps[bank] + port_ps(noc, volume, noc->bank_bytes_per_clk), left_ps);
    noc->bank_in_ps[bank] = in_ps;
    request->bank = bank;
    request->cache_set = set_of(quotient(local_line, slices), noc->sets, noc->set_index);
    fifo_push_copy(target, pool, request, in_ps + noc->latency_ps);
    port->head++;
    bank_wake_ps[bank] = min(bank_wake_ps[bank], in_ps + noc->latency_ps);
    return 1;
}

/* When the next request can leave, -1 where a store for another GPU came up. */
static int64_t noc_requests(struct noc *noc, struct fifo *fifos, struct request *pool, int64_t begin_ps, int64_t end_ps,
                            int64_t *bank_wake_ps)
{
    noc->turn++;
    if (sort(noc, fifos, pool, noc->first_port_fifo, noc->cus, begin_ps, end_ps) > 0) {
        for (int64_t c = 0; c < MAX_CUS; c++)
            noc->stuck[c] = 0;
        for (int slot = 0; slot < SLOTS; slot++)
            for (int64_t packet = noc->slot_first[slot]; packet >= 0; packet = noc->packet_next[packet]) {
                int64_t c = noc->packet_source[packet];
                if (noc->stuck[c])
                    continue;
                int sent = send(noc, c, fifos, pool, bank_wake_ps);
                if (sent < 0)
                    return -1;
                noc->stuck[c] = !sent;
            }
    }
    int64_t next_ps = NEVER;
    for (int64_t source = 0; source < noc->cus; source++)
        next_ps = min(next_ps, fifo_head_ps(&fifos[noc->first_port_fifo + source], pool));
    return next_ps < NEVER ? max(next_ps, end_ps) : NEVER;
}

int64_t noc_loop(struct noc *noc, int64_t noc_count, struct fifo *fifos, int64_t fifo_count, struct request *pool,
                 int64_t pool_count, int64_t *bank_wake_ps, int64_t wake_count, int64_t requests, int64_t window_ps,
                 int64_t step_bytes)
{
    int64_t moved = 0, line = 0, begin_ps = 0;
    while (moved < requests) {
        for (int64_t c = 0; c < noc->cus; c++) {
            struct fifo *port = &fifos[noc->first_port_fifo + c];
            for (int64_t k = 0; k < PACKETS_PER_WINDOW && !fifo_full(port); k++) {
                struct request *request = fifo_push(port, pool);
                request->line = line;
                request->sectors = request->full = 15;
                request->op = OP_READ;
                request->source = c;
                request->ready_ps = begin_ps + k * window_ps / PACKETS_PER_WINDOW;
                line += step_bytes;
            }
        }
        if (noc_requests(noc, fifos, pool, begin_ps, begin_ps + window_ps, bank_wake_ps) < 0)
            return -1;
        for (int64_t b = 0; b < noc->banks; b++) {
            struct fifo *bank = &fifos[noc->first_request_fifo + b];
            moved += fifo_fill(bank);
            bank->head = bank->tail;
        }
        begin_ps += window_ps;
    }
    return moved;
}
