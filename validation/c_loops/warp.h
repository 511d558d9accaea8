/* Warps of one CU and their scoreboard, as sim/hw/warp.py. */

#pragma once

#include "fifo.h"

static inline void set_key(struct warps *warps, int64_t w, int64_t key)
{
    const int64_t *keys = &warps->key[w & ~15];
    warps->key[w] = key;
    int64_t best = keys[0];
    for (int k = 1; k < 16; k++)
        best = min(best, keys[k]);
    warps->group_key[w >> 4] = best;
}

static inline void warp_ready(struct warps *warps, int64_t w, int64_t ready_ps)
{
    warps->warp[w].state = READY;
    set_key(warps, w, ready_ps << WARP_BITS | w);
}

static inline void warp_sleep(struct warps *warps, int64_t w, int state, int64_t now_ps)
{
    warps->warp[w].state = state;
    warps->warp[w].slept_ps = now_ps;
    set_key(warps, w, ASLEEP);
}

static inline int64_t next_warp(const struct warps *warps)
{
    const int64_t *keys = warps->group_key;
    return min(min(keys[0], keys[1]), min(keys[2], keys[3]));
}

static inline int64_t next_issue_ps(const struct warps *warps)
{
    int64_t key = next_warp(warps);
    return key != ASLEEP ? key >> WARP_BITS : NEVER;
}

/* now_ps or earlier: the slots are empty, NEVER: answers are outstanding. */
static inline int64_t slots_clear_ps(struct warp *warp, uint64_t wait, int64_t now_ps)
{
    int64_t clear_ps = 0;
    for (uint64_t mask = warp->pending & wait; mask != 0; mask &= mask - 1) {
        const struct slot *slot = &warp->slot[__builtin_ctzll(mask)];
        if (slot->count > 0)
            return NEVER;
        if (slot->done_ps > now_ps)
            clear_ps = max(clear_ps, slot->done_ps);
        else
            warp->pending &= ~(mask & -mask);
    }
    return clear_ps;
}

static inline void slot_take(struct warp *warp, int64_t number)
{
    if (number == NO_SLOT)
        return;
    struct slot *slot = &warp->slot[number];
    if (slot->count == 0 && (warp->pending >> number & 1) == 0)
        slot->done_ps = 0;
    slot->count++;
    warp->pending |= (uint64_t)1 << number;
}

/* Since when the warp slept that this wakes, -1: it wakes none. */
static inline int64_t slot_done(struct warps *warps, int64_t w, int64_t number, int64_t done_ps)
{
    if (number == NO_SLOT)
        return -1;
    struct warp *warp = &warps->warp[w];
    struct slot *slot = &warp->slot[number];
    slot->count--;
    slot->done_ps = max(slot->done_ps, done_ps);
    if (warp->state != ON_SLOTS || slot->count != 0)
        return -1;
    int64_t clear_ps = slots_clear_ps(warp, warp->wait, done_ps);
    if (clear_ps >= NEVER)
        return -1;
    warp_ready(warps, w, max(clear_ps, done_ps));
    return warp->slept_ps;
}
