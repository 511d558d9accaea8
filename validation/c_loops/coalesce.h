/* Lanes of one memory event to lines, sectors and full sectors, as tracer/coalesce.py. */

#pragma once

#include "fifo.h"

#define SECTOR_SHIFT 5
#define WHOLE_SECTOR 0xffffffffLL

static int64_t lane_address(const struct event *event, int64_t base, const uint64_t *addresses, int64_t lane)
{
    if (event->inner == EXPLICIT)
        return addresses[base + lane];
    int64_t row = (uint32_t)lane / (uint32_t)event->inner;
    return base + (lane - row * event->inner) * event->stride + row * event->row_stride;
}

static int64_t touched_bytes(const struct event *event, int64_t base, const uint64_t *addresses, int64_t sector)
{
    int64_t touched = 0, width = event->width_bytes, span = ((int64_t)1 << width) - 1;
    for (int64_t lane = 0; lane < __builtin_popcountll(event->mask); lane++) {
        int64_t offset = lane_address(event, base, addresses, lane) - sector;
        if (offset > -width && offset < SECTOR_BYTES)
            touched |= offset >= 0 ? span << offset : span >> -offset;
    }
    return touched & WHOLE_SECTOR;
}

static void complete_full_sectors(const struct event *event, int64_t base, const uint64_t *addresses, int64_t n,
                                  const int64_t *line, const uint8_t *sectors, uint8_t *full)
{
    for (int64_t i = 0; i < n; i++)
        for (int sector = 0; sector < LINE_BYTES / SECTOR_BYTES; sector++)
            if ((sectors[i] & ~full[i]) >> sector & 1
                && touched_bytes(event, base, addresses, line[i] + sector * SECTOR_BYTES) == WHOLE_SECTOR)
                full[i] |= 1 << sector;
}

static int64_t coalesce_at(const struct event *event, int64_t base, const uint64_t *addresses, int64_t *line_out,
                           uint8_t *sectors_out, uint8_t *full_out)
{
    int64_t lanes = __builtin_popcountll(event->mask), lane = 0, n = 0, highest = INT64_MIN;
    while (lane < lanes) {
        int64_t start, taken = 1, bytes = event->width_bytes;
        if (event->inner == EXPLICIT) {
            const uint64_t *listed = addresses + base + lane;
            start = listed[0];
            while (taken < lanes - lane && (int64_t)listed[taken] == start + taken * event->width_bytes)
                taken++;
            bytes = taken * event->width_bytes;
        } else {
            int64_t row = (uint32_t)lane / (uint32_t)event->inner, column = lane - row * event->inner;
            int64_t row_left = min(lanes - lane, event->inner - column);
            start = base + column * event->stride + row * event->row_stride;
            if (event->stride == event->width_bytes) {
                taken = row_left;
                bytes = row_left * event->width_bytes;
            } else if (event->stride == 0) {
                taken = row_left;
            }
        }
        lane += taken;
        int64_t line = start & -LINE_BYTES, low = start - line, end = low + bytes;
        while (end > 0) {
            int64_t high = min(end, LINE_BYTES);
            int sectors = (2 << ((high - 1) >> SECTOR_SHIFT)) - (1 << (low >> SECTOR_SHIFT));
            int64_t first_full = (low + SECTOR_BYTES - 1) >> SECTOR_SHIFT, end_full = high >> SECTOR_SHIFT;
            int full = end_full > first_full ? (1 << end_full) - (1 << first_full) : 0;
            int64_t i = n;
            if (line <= highest) {
                for (i = n - 1; i >= 0 && line_out[i] != line; i--)
                    ;
                if (i < 0)
                    i = n;
            }
            if (i == n) {
                line_out[n] = line;
                sectors_out[n] = sectors;
                full_out[n] = full;
                n++;
                highest = line > highest ? line : highest;
            } else {
                sectors_out[i] |= sectors;
                full_out[i] |= full;
            }
            line += LINE_BYTES;
            low = 0;
            end -= LINE_BYTES;
        }
    }
    if (event->kind == KIND_STORE)
        complete_full_sectors(event, base, addresses, n, line_out, sectors_out, full_out);
    else
        for (int64_t i = 0; i < n; i++)
            full_out[i] = sectors_out[i];
    return n;
}
