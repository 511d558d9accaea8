/* Tag store of a sectored set-associative cache, as sim/hw/tags.py. */

#pragma once

#include "records.h"

static const int64_t SECTORS_IN[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};

static void expect(const struct cache_set *set, int64_t ways)
{
    for (int64_t way = 0; way < ways; way += BLOCK) {
        __builtin_prefetch(set->low + way);
        __builtin_prefetch(set->block + way / BLOCK);
        __builtin_prefetch(set->way + way);
    }
}

/* Last of sixteen ways whose tag is (low, high), else -1; without a branch, so that the compiler makes it vectors. */
static inline int32_t way_in_block(const int32_t *lows, const int16_t *highs, int32_t low, int16_t high)
{
    int32_t found = -1;
    for (int32_t k = 0; k < BLOCK; k++)
        found = lows[k] == low && highs[k] == high ? k : found;
    return found;
}

static inline int64_t find_way(const struct cache_set *set, int64_t ways, int64_t line)
{
    int32_t low = (int32_t)(line >> 7);
    int16_t high = (int16_t)(line >> (7 + LOW_BITS));
    int32_t way = way_in_block(set->low, set->block[0].high, low, high);
    if (way < 0 && ways > BLOCK) {
        way = way_in_block(set->low + BLOCK, set->block[1].high, low, high);
        return way < 0 ? -1 : BLOCK + way;
    }
    return way;
}

static inline int newest(const struct way_block *block)
{
    int age = 0;
    for (int32_t k = 0; k < BLOCK; k++)
        age = age > (block->age[k] & (HELD - 1)) ? age : block->age[k] & (HELD - 1);
    return age;
}

/* 0: the touch numbers have run out. */
static inline int touch(struct cache_set *set, int64_t ways, int64_t way)
{
    int age = newest(set->block);
    if (ways > BLOCK && newest(set->block + 1) > age)
        age = newest(set->block + 1);
    if (age == HELD - 1)
        return 0;
    int16_t *own = &set->block[way / BLOCK].age[way % BLOCK];
    *own = (int16_t)((*own & HELD) | (age > EVICT_FIRST ? age + 1 : EVICT_FIRST + 1));
    return 1;
}

/* Give the lines small touch numbers in the same order. */
static void renumber(struct cache_set *set)
{
    int done = EVICT_FIRST;
    for (int turn = 0; turn < MAX_WAYS; turn++) {
        int oldest = -1, least = HELD;
        for (int way = 0; way < MAX_WAYS; way++) {
            int age = set->block[way / BLOCK].age[way % BLOCK] & ~HELD;
            if (done < age && age < least) {
                oldest = way;
                least = age;
            }
        }
        if (oldest < 0)
            break;
        int16_t *age = &set->block[oldest / BLOCK].age[oldest % BLOCK];
        *age = (int16_t)((*age & HELD) | ++done);
    }
}

static inline void touch_or_renumber(struct cache_set *set, int64_t ways, int64_t way)
{
    if (!touch(set, ways, way)) {
        renumber(set);
        touch(set, ways, way);
    }
}

/* An empty way, else the least recently used; nothing may be held. */
static inline int64_t victim_way(const struct cache_set *set, int64_t ways)
{
    int64_t victim = 0;
    int least = HELD;
    for (int64_t way = 0; way < ways; way++) {
        int age = set->block[way / BLOCK].age[way % BLOCK];
        victim = age < least ? way : victim;
        least = age < least ? age : least;
    }
    return victim;
}

static inline void claim_way(struct cache_set *set, int64_t ways, int64_t way, int64_t line)
{
    struct way_block *block = &set->block[way / BLOCK];
    set->low[way] = (int32_t)(line >> 7);
    block->high[way % BLOCK] = (int16_t)(line >> (7 + LOW_BITS));
    block->age[way % BLOCK] = 0;
    set->way[way] = (struct sectors){0};
    touch_or_renumber(set, ways, way);
}
