/* FR-FCFS and the timing of commands, as sim/hw/hbm_scheduler.py and sim/hw/hbm_timing.py. */

#pragma once

#include "hbm_queue.h"

#define FAW_ACTIVATES 4

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
    channel->age_max_ps[stream] = max(channel->age_max_ps[stream], now_ps - channel->accepted_ps[atom->request]);
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
