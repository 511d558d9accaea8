/* Divisions by what is nearly always a power of two, as sim/hw/bits.py. */

#pragma once

#include <stdint.h>

static inline int64_t quotient(int64_t value, int64_t divisor)
{
    return (divisor & (divisor - 1)) == 0 ? value >> __builtin_ctzll(divisor) : value / divisor;
}

static inline int64_t remainder_of(int64_t value, int64_t divisor)
{
    return (divisor & (divisor - 1)) == 0 ? value & (divisor - 1) : value % divisor;
}
