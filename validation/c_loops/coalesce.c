/* The coalescer alone. */

#include "coalesce.h"

int64_t coalesce_loop(const struct event *events, int64_t event_count, const uint64_t *addresses, int64_t address_count,
                      int64_t *line, int64_t line_count, uint8_t *sectors, int64_t sector_count, uint8_t *full,
                      int64_t full_count, int64_t rounds)
{
    int64_t lines = 0;
    for (int64_t round = 0; round < rounds; round++)
        for (int64_t k = 0; k < event_count; k++)
            lines += coalesce_at(&events[k], events[k].base, addresses, line, sectors, full);
    return lines;
}
