"""Channel records from the spec: all clocks become picoseconds. `sim.presets.check` checks the values."""

import math

import numpy as np

from sim.hw.bits import reciprocal
from sim.hw.hbm.queue import MAX_ATOMS
from sim.hw.hbm.record import CHANNEL, MAX_BANKS
from sim.hw.lanes import note_shared
from sim.hw.mca import lift_limits
from sim.hw.policy import VARIABLE, pick
from sim.hw.prefetch import host_aligned
from sim.hw.request import NEVER, SECTOR_BYTES, SECTORS_PER_LINE
from sim.hw.stream_heads import oldest_head
from sim.spec import HBM, Arbiter, BankMap, QueueOrganisation, UpdateScope
from traces.errors import UserError
from traces.units import whole_period_ps


def make_hbm_channels(hbm: HBM, in_fifos: np.ndarray, out_fifos: np.ndarray) -> np.ndarray:
    """Idle channels, all banks closed.

    Args:
        hbm: the spec, checked (`sim.presets.check.check_hbm`).
        in_fifos: (channels, STREAMS) fifo indices in front of the queue (`sim.hw.lanes.note_shared`).
        out_fifos: (channels,) fifo indices of the answers to reads. An answer is in this fifo from the issue of its
            last column on, so the depth limits the reads in flight between column command and consumer.

    Raises:
        UserError: the arbiter is a user's policy, but there is none.
    """
    check_policy_bound(hbm)
    channels = host_aligned(len(out_fifos), CHANNEL)
    channels["lanes"]["in_fifo"], channels["lanes"]["fabric_fifo"] = in_fifos, -1
    note_shared(channels["lanes"])
    channels["out_fifo"] = out_fifos
    channels["note_fifo"] = channels["data_fifo"] = -1
    lift_limits(channels)
    _set_geometry(channels, hbm)
    _set_timing(channels, hbm)
    _set_policies(channels, hbm)
    for name in ("head", "tail", "open_row"):
        channels["bank"][name] = -1
    numbers = np.arange(MAX_BANKS)
    channels["bank"]["group"] = numbers // hbm.banks_per_group
    channels["bank"]["alu"] = numbers if hbm.update_scope == UpdateScope.BANK else channels["bank"]["group"]
    channels["served"] = -1
    channels["aged"] = -1
    channels["last_stream"] = -1
    channels["wrong_ps"] = NEVER
    channels["free_atoms"] = channels["free_requests"] = MAX_ATOMS
    channels["free_atom"] = channels["free_request"] = np.arange(MAX_ATOMS)[::-1]  # taken from the end: low slots first
    return channels


def check_policy_bound(hbm: HBM) -> None:
    """Refuse the arbiter `user` without a user's policy."""
    if hbm.arbiter == Arbiter.USER and pick is oldest_head:
        raise UserError(f"hbm.arbiter = user, but the environment variable {VARIABLE} names no policy file")


def _set_geometry(channels: np.ndarray, hbm: HBM) -> None:
    channels["interleave_bytes"] = hbm.interleave_bytes
    channels["channels"] = hbm.channels
    channels["banks"] = hbm.bank_groups * hbm.banks_per_group
    channels["group_bits"] = hbm.bank_groups.bit_length() - 1
    channels["bank_bits"] = hbm.banks_per_group.bit_length() - 1
    channels["row_bits"] = hbm.row_bytes.bit_length() - 1
    channels["bank_map"], channels["bank_hash"] = hbm.bank_map, hbm.bank_hash
    channels["column_entries"] = hbm.column_bytes // SECTOR_BYTES
    group_bits = channels["group_bits"]
    shared_bits = {BankMap.BG: group_bits, BankMap.SG: np.minimum(group_bits, 1)}.get(hbm.bank_map, 0)
    channels["row_shift"] = channels["row_bits"] + shared_bits


def _set_timing(channels: np.ndarray, hbm: HBM) -> None:
    timing = hbm.timing
    period_ps = whole_period_ps(hbm.clock_MHz)
    channels["period_ps"], channels["clk_per_ps"] = period_ps, reciprocal(period_ps)
    for name in timing.__struct_fields__:
        channels["tBURST_ps" if name == "burst" else f"t{name}_ps"] = getattr(timing, name) * period_ps
    # The data bus carries one burst at a time, also if the column delays are shorter.
    channels["tCCD_S_ps"] = max(timing.CCD_S, timing.burst) * period_ps
    channels["tRTW_ps"] = max(timing.RTW, timing.CL + timing.burst - timing.WL) * period_ps
    channels["extra_latency_ps"] = hbm.extra_latency_ps
    channels["age_limit_ps"] = math.ceil(hbm.age_limit_ps / period_ps) * period_ps
    channels["age_check_ps"] = 0 if hbm.age_limit_ps else NEVER
    channels["activates_ps"] = -channels["tFAW_ps"][:, None]
    channels["refresh_due_ps"] = channels["tREFI_ps"]


def _set_policies(channels: np.ndarray, hbm: HBM) -> None:
    channels["split"] = hbm.queue == QueueOrganisation.SPLIT
    channels["page"] = hbm.page
    channels["arbiter"] = hbm.arbiter
    channels["update_scope"] = hbm.update_scope
    channels["turn"], channels["turn_requests"] = hbm.turn, hbm.turn_requests
    channels["queue_entries"] = hbm.queue_entries
    # A queue without room for a line counts as above the high mark, also if it is short. The marks stay apart.
    write_high = min(math.floor(hbm.write_high * hbm.queue_entries), hbm.queue_entries - SECTORS_PER_LINE)
    channels["write_high"] = write_high
    channels["write_low"] = min(math.ceil(hbm.write_low * hbm.queue_entries), write_high + 1)
    channels["refresh_postpone"] = hbm.refresh_postpone
