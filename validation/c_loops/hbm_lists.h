/* Where queued atoms wait: four lists per bank, as sim/hw/hbm_lists.py. */

#pragma once

#include "fifo.h"

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
