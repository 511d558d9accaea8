/* The set of a line, as sim/hw/address_map.py. */

#pragma once

#include "bits.h"
#include "records.h"

static inline int64_t set_of(int64_t value, int64_t sets, int64_t index)
{
    if (index != INDEX_HASH)
        return remainder_of(value, sets);
    return remainder_of(value + remainder_of((quotient(value, sets) * 0x9E3779B1LL) >> 15, sets), sets);
}
