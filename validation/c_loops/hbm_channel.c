/* One HBM channel as sim/hw/hbm*.py: reads and writes, FR-FCFS over lists per bank, open page.
 * What the benchmark's streams do not use is left out, and refused at the start: refresh, near-memory updates, age
 * limit, closed page, policies other than FCFS, notes to the Tracker, the command log. */

#include "fifo.h"

#define SECTORS_PER_ATOM 2
#define FAW_ACTIVATES 4
enum { READS, WRITES };

static int64_t shift_of(int64_t value) { return __builtin_ctzll(value); }

static int64_t quotient(int64_t value, int64_t divisor)
{
    return (divisor & (divisor - 1)) == 0 ? value >> shift_of(divisor) : value / divisor;
}

static int64_t remainder_of(int64_t value, int64_t divisor)
{
    return (divisor & (divisor - 1)) == 0 ? value & (divisor - 1) : value % divisor;
}

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
    } else {
        bank = (local >> rows) & (((int64_t)1 << banks) - 1);
        group = (local >> (rows + banks)) & (((int64_t)1 << groups) - 1);
    }
    return (struct place){(group << banks) + bank, row, byte / SECTOR_BYTES};
}

/* ---- lists of a bank (hbm_lists) ---- */

static void append_hit(struct channel *channel, int64_t bank_index, int direction, int64_t slot)
{
    struct bank *bank = &channel->bank[bank_index];
    channel->atom[slot].next = -1;
    if (bank->hit_head[direction] < 0) {
        bank->hit_head[direction] = slot;
        int64_t place = channel->hit_banks[direction]++;
        channel->hit_bank[direction][place] = bank_index;
        bank->hit_place[direction] = place;
    } else {
        channel->atom[bank->hit_tail[direction]].next = slot;
    }
    bank->hit_tail[direction] = slot;
}

static void append_miss(struct channel *channel, int64_t bank_index, int direction, int64_t slot)
{
    struct bank *bank = &channel->bank[bank_index];
    channel->atom[slot].next = -1;
    if (bank->miss_head[direction] < 0) {
        bank->miss_head[direction] = slot;
        int64_t place = channel->miss_banks[direction]++;
        channel->miss_bank[direction][place] = bank_index;
        bank->miss_place[direction] = place;
    } else {
        channel->atom[bank->miss_tail[direction]].next = slot;
    }
    bank->miss_tail[direction] = slot;
}

static void strike_hits(struct channel *channel, struct bank *bank, int direction)
{
    bank->hit_head[direction] = -1;
    int64_t last = channel->hit_bank[direction][--channel->hit_banks[direction]], place = bank->hit_place[direction];
    channel->hit_bank[direction][place] = last;
    channel->bank[last].hit_place[direction] = place;
}

static void strike_misses(struct channel *channel, struct bank *bank, int direction)
{
    bank->miss_head[direction] = -1;
    int64_t last = channel->miss_bank[direction][--channel->miss_banks[direction]], place = bank->miss_place[direction];
    channel->miss_bank[direction][place] = last;
    channel->bank[last].miss_place[direction] = place;
}

static void row_opened(struct channel *channel, int64_t bank_index, int64_t row)
{
    struct bank *bank = &channel->bank[bank_index];
    for (int direction = 0; direction < 2; direction++) {
        int64_t slot = bank->miss_head[direction], kept = 0;
        if (slot < 0)
            continue;
        while (slot >= 0) {
            struct atom *atom = &channel->atom[slot];
            int64_t following = atom->next;
            if (atom->row == row) {
                append_hit(channel, bank_index, direction, slot);
            } else {
                atom->next = -1;
                if (kept++ == 0)
                    bank->miss_head[direction] = slot;
                else
                    channel->atom[bank->miss_tail[direction]].next = slot;
                bank->miss_tail[direction] = slot;
            }
            slot = following;
        }
        if (kept == 0)
            strike_misses(channel, bank, direction);
    }
}

static void row_closed(struct channel *channel, int64_t bank_index)
{
    struct bank *bank = &channel->bank[bank_index];
    for (int direction = 0; direction < 2; direction++) {
        int64_t hit = bank->hit_head[direction], miss = bank->miss_head[direction], slot;
        if (hit < 0)
            continue;
        strike_hits(channel, bank, direction);
        if (miss >= 0)
            strike_misses(channel, bank, direction);
        while (hit >= 0 || miss >= 0) {
            if (miss < 0 || (hit >= 0 && channel->atom[hit].order < channel->atom[miss].order)) {
                slot = hit;
                hit = channel->atom[hit].next;
            } else {
                slot = miss;
                miss = channel->atom[miss].next;
            }
            append_miss(channel, bank_index, direction, slot);
        }
    }
}

/* ---- queue (hbm_queue) ---- */

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
    atom->accepted_ps = now_ps;
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

/* ---- arbiter and entry (arbiter, hbm) ---- */

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

/* ---- scheduler (hbm_scheduler, hbm_timing) ---- */

static int drained(const struct channel *channel)
{
    int64_t writes = channel->queued[WRITES];
    return writes == 0 || (writes < channel->write_low && channel->read_held == 0);
}

static int64_t next_mode(const struct channel *channel, int64_t reads)
{
    int64_t writes = channel->queued[WRITES];
    if (channel->mode == READS) {
        int pressing = (writes > channel->write_high || channel->read_held == 1) && channel->phase_left <= 0;
        return writes > 0 && (reads == 0 || pressing) ? WRITES : READS;
    }
    return reads > 0 && (drained(channel) || channel->phase_left <= 0) ? READS : WRITES;
}

static void serve(struct channel *channel, int reads_blocked)
{
    int64_t served = 3;
    if (channel->split) {
        int64_t mode = next_mode(channel, reads_blocked ? 0 : channel->queued[READS]);
        if (mode != channel->mode) {
            channel->mode = mode;
            if (mode == WRITES) {
                channel->phase_left = channel->queued[WRITES];
                channel->drains++;
            } else {
                channel->phase_left = drained(channel) ? 0 : channel->queued[READS];
            }
            channel->column_wake_ps = channel->row_wake_ps = 0;
        }
        served = 1 << mode;
    }
    if (reads_blocked)
        served &= ~(1 << READS);
    if (served != channel->served) {
        channel->served = served;
        channel->column_wake_ps = channel->row_wake_ps = 0;
    }
}

static int64_t column_ready_ps(const struct channel *channel, const struct bank *bank, int64_t op)
{
    const struct group *group = &channel->group[bank->group];
    if (op == OP_READ)
        return max(max(bank->read_ps, group->read_ps), channel->read_ps);
    return max(max(bank->write_ps, group->write_ps), channel->write_ps);
}

static int64_t activate_ready_ps(const struct channel *channel, const struct bank *bank)
{
    int64_t window_ps = channel->activates_ps[channel->activate_next] + channel->tFAW_ps;
    return max(max(bank->activate_ps, channel->group[bank->group].activate_ps), max(channel->activate_ps, window_ps));
}

static int64_t move_column(struct channel *channel, const struct atom *atom, int64_t now_ps)
{
    struct bank *bank = &channel->bank[atom->bank];
    struct group *group = &channel->group[bank->group];
    channel->commands++;
    if (atom->op == OP_READ) {
        channel->read_columns[atom->stream] += channel->column_entries;
        bank->precharge_ps = max(bank->precharge_ps, now_ps + channel->tRTP_ps);
        group->read_ps = now_ps + channel->tCCD_L_ps;
        channel->read_ps = max(channel->read_ps, now_ps + channel->tCCD_S_ps);
        channel->write_ps = max(channel->write_ps, now_ps + channel->tRTW_ps);
        return now_ps + channel->tCL_ps + channel->tBURST_ps;
    }
    int64_t end_ps = now_ps + channel->tWL_ps + channel->tBURST_ps;
    channel->write_columns[atom->stream] += channel->column_entries;
    bank->precharge_ps = max(bank->precharge_ps, end_ps + channel->tWR_ps);
    group->write_ps = now_ps + channel->tCCD_L_ps;
    group->read_ps = max(group->read_ps, end_ps + channel->tWTR_L_ps);
    channel->write_ps = max(channel->write_ps, now_ps + channel->tCCD_S_ps);
    channel->read_ps = max(channel->read_ps, end_ps + channel->tWTR_S_ps);
    return end_ps;
}

static void issue_column(struct channel *channel, struct fifo *fifos, struct request *pool, int64_t now_ps)
{
    if (now_ps < channel->column_wake_ps)
        return;
    int64_t chosen = -1, order = NEVER, wake_ps = NEVER;
    for (int direction = 0; direction < 2; direction++) {
        if (((channel->served >> direction) & 1) == 0)
            continue;
        for (int64_t place = 0; place < channel->hit_banks[direction]; place++) {
            const struct bank *bank = &channel->bank[channel->hit_bank[direction][place]];
            int64_t slot = bank->hit_head[direction];
            const struct atom *atom = &channel->atom[slot];
            if (atom->order > order)
                continue;
            int64_t ready_ps = column_ready_ps(channel, bank, atom->op);
            if (ready_ps > now_ps) {
                wake_ps = min(wake_ps, ready_ps);
            } else {
                chosen = slot;
                order = atom->order;
            }
        }
    }
    if (chosen < 0) {
        channel->column_wake_ps = wake_ps;
        return;
    }
    channel->column_wake_ps = now_ps + channel->period_ps;
    const struct atom *atom = &channel->atom[chosen];
    int64_t stream = atom->stream;
    int direction = direction_of(atom->op);
    int64_t end_ps = move_column(channel, atom, now_ps);
    channel->bus_end_ps = max(channel->bus_end_ps, end_ps);
    channel->bus_busy_ps += channel->tBURST_ps;
    channel->phase_left -= channel->column_entries;
    channel->age_max_ps[stream] = max(channel->age_max_ps[stream], now_ps - atom->accepted_ps);
    int64_t finished = column_moved(channel, chosen, direction);
    if (finished < 0)
        return;
    if (direction == READS) {
        int64_t answer_ps = end_ps + channel->extra_latency_ps;
        channel->read_latency_ps += answer_ps - channel->accepted_ps[finished];
        channel->reads_answered++;
        fifo_push_copy(&fifos[channel->out_fifo], pool, &channel->request[finished], answer_ps);
    }
    channel->free_request[channel->free_requests++] = finished;
}

static int has_hits(const struct bank *bank, int64_t serves)
{
    return ((serves & 1) && bank->hit_head[READS] >= 0) || ((serves & 2) && bank->hit_head[WRITES] >= 0);
}

static void issue_row(struct channel *channel, int64_t now_ps)
{
    if (now_ps < channel->row_wake_ps)
        return;
    if (now_ps < channel->row_ps) {
        channel->row_wake_ps = channel->row_ps;
        return;
    }
    int64_t chosen = -1, order = NEVER, wake_ps = NEVER, serves = channel->split ? 1 << channel->mode : 3;
    for (int direction = 0; direction < 2; direction++) {
        if (((serves >> direction) & 1) == 0)
            continue;
        for (int64_t place = 0; place < channel->miss_banks[direction]; place++) {
            const struct bank *bank = &channel->bank[channel->miss_bank[direction][place]];
            int64_t slot = bank->miss_head[direction], ready_ps;
            if (channel->atom[slot].order > order)
                continue;
            if (bank->open_row < 0)
                ready_ps = activate_ready_ps(channel, bank);
            else if (has_hits(bank, serves))
                continue;
            else
                ready_ps = bank->precharge_ps;
            if (ready_ps > now_ps) {
                wake_ps = min(wake_ps, ready_ps);
            } else {
                chosen = slot;
                order = channel->atom[slot].order;
            }
        }
    }
    if (chosen < 0) {
        channel->row_wake_ps = wake_ps;
        return;
    }
    struct atom *atom = &channel->atom[chosen];
    int64_t bank_index = atom->bank;
    struct bank *bank = &channel->bank[bank_index];
    channel->commands++;
    channel->row_ps = now_ps + channel->period_ps;
    if (bank->open_row >= 0) {
        bank->open_row = -1;
        bank->activate_ps = max(bank->activate_ps, now_ps + channel->tRP_ps);
        channel->open_banks--;
        channel->precharges++;
        row_closed(channel, bank_index);
    } else {
        atom->opened = 1;
        bank->open_row = atom->row;
        bank->read_ps = now_ps + channel->tRCD_rd_ps;
        bank->write_ps = now_ps + channel->tRCD_wr_ps;
        bank->precharge_ps = now_ps + channel->tRAS_ps;
        bank->activate_ps = now_ps + channel->tRC_ps;
        channel->group[bank->group].activate_ps = now_ps + channel->tRRD_L_ps;
        channel->activate_ps = now_ps + channel->tRRD_S_ps;
        channel->activates_ps[channel->activate_next] = now_ps;
        channel->activate_next = (channel->activate_next + 1) % FAW_ACTIVATES;
        channel->open_banks++;
        channel->acts++;
        row_opened(channel, bank_index, atom->row);
        channel->column_wake_ps = min(channel->column_wake_ps, min(bank->read_ps, bank->write_ps));
    }
    channel->row_wake_ps = now_ps + channel->period_ps;
}

/* ---- the channel and its driver (hbm, sim/dram.py) ---- */

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
