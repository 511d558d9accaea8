/* The scheduler queue of one channel, as sim/hw/hbm_queue.py, and the map of banks of sim/hw/address_map.py. */

#pragma once

#include "bits.h"
#include "hbm_lists.h"

#define SECTORS_PER_ATOM 2
enum { READS, WRITES };

static int64_t channel_local(const struct channel *channel, int64_t address)
{
    int64_t interleave = channel->interleave_bytes;
    return quotient(address, interleave * channel->channels) * interleave + remainder_of(address, interleave);
}

struct place {
    int64_t bank, row, column;
};

static struct place place_of(const struct channel *channel, int64_t local)
{
    int64_t groups = channel->group_bits, banks = channel->bank_bits, rows = channel->row_bits;
    int64_t row = local >> (rows + banks + groups), byte = local & (((int64_t)1 << rows) - 1), group, bank;
    if (channel->bank_map == MAP_BG) {
        int64_t atom = (local >> (ATOM_BITS + groups)) & (((int64_t)1 << (rows - ATOM_BITS)) - 1);
        group = (local >> ATOM_BITS) & (((int64_t)1 << groups) - 1);
        byte = (atom << ATOM_BITS) + (local & (ATOM_BYTES - 1));
        bank = (local >> (rows + groups)) & (((int64_t)1 << banks) - 1);
    } else if (channel->bank_map == MAP_RG) {
        group = (local >> rows) & (((int64_t)1 << groups) - 1);
        bank = (local >> (rows + groups)) & (((int64_t)1 << banks) - 1);
    } else if (channel->bank_map == MAP_SG) {
        int64_t lows = groups > 0, mask = ((int64_t)1 << CHUNK_BITS) - 1;
        int64_t chunk = (local >> (CHUNK_BITS + lows)) & (((int64_t)1 << (rows - CHUNK_BITS)) - 1);
        byte = (chunk << CHUNK_BITS) + (local & mask);
        group = (((local >> (rows + lows)) & (((int64_t)1 << (groups - lows)) - 1)) << lows)
            + ((local >> CHUNK_BITS) & (((int64_t)1 << lows) - 1));
        bank = (local >> (rows + groups)) & (((int64_t)1 << banks) - 1);
    } else {
        bank = (local >> rows) & (((int64_t)1 << banks) - 1);
        group = (local >> (rows + banks)) & (((int64_t)1 << groups) - 1);
    }
    return (struct place){(group << banks) + bank, row, byte / SECTOR_BYTES};
}

static int direction_of(int64_t op) { return op == OP_READ ? READS : WRITES; }

static int64_t entries_of(const struct channel *channel, int sectors)
{
    if (channel->column_entries == 1)
        return __builtin_popcount(sectors & 15);
    return channel->column_entries * (((sectors & 3) != 0) + ((sectors >> SECTORS_PER_ATOM) != 0));
}

static int fits(const struct channel *channel, const struct request *request)
{
    int64_t held = channel->split ? channel->queued[direction_of(request->op)]
                                  : channel->queued[READS] + channel->queued[WRITES];
    return held + entries_of(channel, request->sectors) <= channel->queue_entries;
}

static int is_queued(const struct channel *channel, int direction, int64_t place)
{
    struct place wanted = place_of(channel, place * ATOM_BYTES);
    const struct bank *lists = &channel->bank[wanted.bank];
    int64_t heads[2] = {lists->hit_head[direction], lists->miss_head[direction]};
    for (int list = 0; list < 2; list++)
        for (int64_t slot = heads[list]; slot >= 0; slot = channel->atom[slot].next)
            if (channel->atom[slot].row == wanted.row
                && channel->atom[slot].column / SECTORS_PER_ATOM == wanted.column / SECTORS_PER_ATOM)
                return 1;
    return 0;
}

static int conflicts(const struct channel *channel, const struct request *request)
{
    int other = request->op == OP_READ ? WRITES : READS;
    if (channel->queued[other] == 0)
        return 0;
    int64_t local = channel_local(channel, request->line);
    for (int half = 0; half < 2; half++)
        if ((request->sectors >> (SECTORS_PER_ATOM * half)) & 3) {
            int64_t place = local / ATOM_BYTES + half;
            if (channel->pending[other][place % BUCKETS] > 0 && is_queued(channel, other, place))
                return 1;
        }
    return 0;
}

static void enqueue_atom(struct channel *channel, int64_t request_slot, int64_t local, int sectors, int64_t now_ps)
{
    const struct request *request = &channel->request[request_slot];
    int64_t slot = channel->free_atom[--channel->free_atoms];
    struct atom *atom = &channel->atom[slot];
    struct place place = place_of(channel, local);
    struct bank *lists = &channel->bank[place.bank];
    int direction = direction_of(request->op);
    int single = channel->column_entries == 1;
    atom->order = channel->atoms++;
    atom->row = place.row;
    atom->request = request_slot;
    atom->bank = place.bank;
    atom->column = place.column + (sectors == 2 && single);
    atom->bucket = local / ATOM_BYTES % BUCKETS;
    atom->commands = sectors == 3 && single ? 2 : 1;
    atom->op = request->op;
    atom->stream = request->stream;
    atom->opened = 0;
    channel->request_atoms[request_slot]++;
    channel->pending[direction][atom->bucket]++;
    int64_t entries = atom->commands * channel->column_entries;
    channel->queued[direction] += entries;
    channel->queued_stream[request->stream] += entries;
    if (lists->open_row == place.row) {
        if (lists->hit_head[direction] < 0)
            channel->column_wake_ps = 0;
        append_hit(channel, place.bank, direction, slot);
    } else {
        if (lists->miss_head[direction] < 0)
            channel->row_wake_ps = min(channel->row_wake_ps, lists->open_row < 0 ? lists->activate_ps : lists->precharge_ps);
        append_miss(channel, place.bank, direction, slot);
    }
}

static void enqueue(struct channel *channel, const struct request *request, int64_t now_ps)
{
    int64_t slot = channel->free_request[--channel->free_requests];
    channel->request[slot] = *request;
    channel->accepted_ps[slot] = now_ps;
    channel->request_atoms[slot] = 0;
    int64_t local = channel_local(channel, request->line);
    for (int half = 0; half < 2; half++) {
        int sectors = (request->sectors >> (SECTORS_PER_ATOM * half)) & 3;
        if (sectors)
            enqueue_atom(channel, slot, local + ATOM_BYTES * half, sectors, now_ps);
    }
    channel->accepted[request->stream]++;
    channel->wait_ps[request->stream] += now_ps - request->ready_ps;
}

static int64_t column_moved(struct channel *channel, int64_t slot, int direction)
{
    struct atom *atom = &channel->atom[slot];
    atom->commands--;
    atom->column++;
    channel->queued[direction] -= channel->column_entries;
    channel->queued_stream[atom->stream] -= channel->column_entries;
    if (atom->commands > 0)
        return -1;
    struct bank *bank = &channel->bank[atom->bank];
    if (atom->next < 0) {
        strike_hits(channel, bank, direction);
        channel->row_wake_ps = min(channel->row_wake_ps, bank->precharge_ps);
    } else {
        bank->hit_head[direction] = atom->next;
    }
    channel->pending[direction][atom->bucket]--;
    channel->row_hits += 1 - atom->opened;
    channel->free_atom[channel->free_atoms++] = slot;
    return --channel->request_atoms[atom->request] == 0 ? atom->request : -1;
}
