/* L1 of one CU, as sim/hw/l1.py: loads that fill it. Left out: stores, accesses that bypass it, a CU without L1. */

#pragma once

#include "address_map.h"
#include "fifo.h"
#include "tags.h"

static inline int64_t chain_of(int64_t line) { return (line >> 7 ^ line >> 15 ^ line >> 23) & (CHAINS - 1); }

static inline struct cache_set *l1_set(const struct l1 *l1, struct cache_set *sets, int64_t line)
{
    return &sets[l1->first_set + set_of(line >> 7, l1->sets, l1->hashed)];
}

static inline void l1_expect(const struct l1 *l1, struct cache_set *sets, int64_t line)
{
    expect(l1_set(l1, sets, line), l1->ways);
}

static inline int l1_hit_sectors(const struct l1 *l1, struct cache_set *sets, int64_t line, int sectors)
{
    struct cache_set *set = l1_set(l1, sets, line);
    int64_t way = find_way(set, l1->ways, line);
    if (way < 0)
        return 0;
    touch_or_renumber(set, l1->ways, way);
    return sectors & set->way[way].valid;
}

/* Sectors that are on their way; `answers` grows by the entries that the load now waits for. */
static inline int l1_join(struct l1 *l1, int64_t line, int sectors, int64_t load, int16_t *answers)
{
    int joined = 0;
    for (int e = l1->chain[chain_of(line)]; e >= 0; e = l1->entry[e].next) {
        struct miss_entry *entry = &l1->entry[e];
        int overlap = sectors & entry->sectors & ~joined;
        if (entry->line != line || overlap == 0)
            continue;
        int j = l1->free_joiner;
        l1->free_joiner = l1->joiner_next[j];
        l1->joiners_used++;
        l1->joiner_load[j] = load;
        l1->joiner_next[j] = entry->joiners;
        entry->joiners = j;
        joined |= overlap;
        ++*answers;
    }
    return joined;
}

static inline int l1_has_room(const struct l1 *l1)
{
    return l1->entries_used < l1->entries && l1->joiners_used <= MAX_JOINERS - 4;
}

static inline int64_t l1_miss(struct l1 *l1, int64_t line, int sectors, int64_t load)
{
    int64_t e = l1->free_entry;
    int16_t *chain = &l1->chain[chain_of(line)];
    l1->free_entry = l1->entry[e].next;
    __builtin_prefetch(&l1->entry[max(l1->free_entry, 0)]);
    l1->entries_used++;
    l1->entries_used_max = max(l1->entries_used_max, l1->entries_used);
    l1->entry[e] = (struct miss_entry){line, load, .joiners = -1, .next = *chain, .sectors = sectors, .keep = 1};
    *chain = e;
    return e;
}

static inline void l1_fill(struct l1 *l1, struct cache_set *sets, const struct miss_entry *entry)
{
    struct cache_set *set = l1_set(l1, sets, entry->line);
    int64_t way = find_way(set, l1->ways, entry->line);
    l1->fills++;
    if (way < 0) {
        way = victim_way(set, l1->ways);
        claim_way(set, l1->ways, way, entry->line);
    }
    set->way[way].valid |= entry->sectors;
}

static inline void l1_close(struct l1 *l1, int64_t e)
{
    struct miss_entry *entry = &l1->entry[e];
    for (int j = entry->joiners, following; j >= 0; j = following) {
        following = l1->joiner_next[j];
        l1->joiner_next[j] = l1->free_joiner;
        l1->free_joiner = j;
        l1->joiners_used--;
    }
    int16_t *link = &l1->chain[chain_of(entry->line)];
    while (*link != e)
        link = &l1->entry[*link].next;
    *link = entry->next;
    entry->next = l1->free_entry;
    l1->free_entry = e;
    l1->entries_used--;
}
