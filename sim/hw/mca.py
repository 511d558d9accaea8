"""MCA (T3): communication-aware arbitration at the memory controllers. All its parts are in this file.

Compute enters a channel's DRAM queue first. Communication enters only while fewer entries than a limit are queued.
Communication that has waited longer than an age limit takes turns with compute.

The limit is chosen once per fused kernel, at the end of its first stage. Busier queues in that stage give a stricter
limit (`spec.MCA`). `Arbiter.MCA_FIXED` has a limit from the start. No other arbiter has a limit.

    host      set_limits, watch_first_stage before a run; mca_facts after it
    engine    stage_ended, choose_limit
    channel   communication_aware, whenever a request may enter its queue
"""

import numpy as np

from sim.hw.hbm.queue import account_occupancy
from sim.hw.request import NEVER, STREAMS, Stream
from sim.hw.stream_heads import older_head, streams_in_turn
from sim.spec import Arbiter
from tracer.compile.jit import compiled

LEVELS = 3

MCA = np.dtype(
    [
        # constants, strictest level first
        ("share", "f8", LEVELS),  # mean occupancy, as a share of the queue, from which ...
        ("limit", "i8", LEVELS),  # ... this limit is used
        # state
        ("stage_workgroups", "i8"),  # the first stage ends when this many have finished; 0 = nothing to choose
        ("stage_from_ps", "i8"),
        ("choose_ps", "i8"),  # when the limit is chosen, NEVER = not known, or done
        ("occupancy", "f8"),  # measured mean, entries per channel
        ("chosen", "i8"),  # limit, NEVER = none
    ]
)
"""The observation and the choice of one GPU."""

MCA_LIMITS = np.dtype(
    [
        ("limit", "i8"),  # communication enters while fewer entries are queued
        ("age_ps", "i8"),  # and in turns with compute when it has waited longer
    ]
)
"""The limits of a channel's arbiter: a field of the channel's record."""


def make_mca(machine):
    """The record of one GPU (an array of one) with the table of limits. machine: sim.spec.Machine."""
    spec, mca = machine.mca, np.zeros(1, MCA)
    mca["share"] = [spec.strict_from, spec.medium_from, spec.loose_from]
    mca["limit"] = [spec.strict, spec.medium, spec.loose]
    mca["chosen"] = mca["choose_ps"] = NEVER
    return mca


def lift_limits(channels):
    """Remove the limits: communication may always enter. channels: CHANNEL records."""
    channels["mca"]["limit"] = channels["mca"]["age_ps"] = NEVER


def set_limits(channels, machine):
    """Set the limits at the start of a run. machine: sim.spec.Machine."""
    lift_limits(channels)
    if machine.hbm.arbiter == Arbiter.MCA_FIXED:
        channels["mca"]["limit"] = machine.mca.threshold
    channels["mca"]["age_ps"] = machine.mca.age_limit_ps or NEVER


def watch_first_stage(mca, workgroups, start_ps):
    """Set the end of the first stage: this many finished workgroups of queue 0. The stage begins at start_ps."""
    mca["stage_workgroups"], mca["stage_from_ps"] = workgroups, start_ps


def mca_facts(mca, channels):
    """By name: the limit in force (entries, None = no limit) and the measured mean (entries queued per channel)."""
    limit = int(channels[0]["mca"]["limit"])
    return {"mca_threshold": None if limit == NEVER else limit, "mca_occupancy": float(mca[0]["occupancy"])}


@compiled(inline=True)
def stage_ended(mca, finished, choose_ps):
    """A workgroup has finished. If it was the last one of the first stage, the limit is chosen later. Writes: mca."""
    if finished == mca.stage_workgroups:
        mca.stage_workgroups, mca.choose_ps = 0, choose_ps


@compiled
def choose_limit(node):
    """Choose the limit from the mean queue occupancy of the first stage. It is `choose_ps`; all channels are there.

    Sets the limit of each channel whose arbiter is MCA, and wakes these channels.

    Writes: node.mca, node.channels, node.channel_wake_ps.
    """
    mca = node.mca[0]
    now_ps, mca.choose_ps = mca.choose_ps, NEVER
    occupied = np.int64(0)
    for h in range(len(node.channels)):
        account_occupancy(node.channels[h], now_ps)
        for stream in range(STREAMS):
            occupied += node.channels[h].occupancy[stream]
    mca.occupancy = occupied / max((now_ps - mca.stage_from_ps) * len(node.channels), 1)
    for level in range(LEVELS):
        if mca.occupancy >= mca.share[level] * node.channels[0].queue_entries:
            mca.chosen = mca.limit[level]
            break
    for h in range(len(node.channels)):
        if node.channels[h].arbiter == Arbiter.MCA:
            node.channels[h].mca.limit = mca.chosen
            node.channel_wake_ps[h] = min(node.channel_wake_ps[h], now_ps)


@compiled(inline=True)
def aged_ps(channel, now_ps):
    """When communication that waits behind the limit is older than the age limit; NEVER if nothing waits so.

    Reads: channel.
    """
    if channel.arbiter != Arbiter.MCA and channel.arbiter != Arbiter.MCA_FIXED:
        return NEVER
    comm = older_head(channel, Stream.COMM_READ, Stream.COMM_WRITE)
    if comm < 0 or channel.mca.age_ps == NEVER:
        return NEVER
    return max(channel.head_ps[comm] + channel.mca.age_ps, now_ps) + 1


@compiled
def communication_aware(channel, now_ps):
    """Select the stream that enters the queue next, -1 for none: compute first, communication if the queue is short.

    Reads: channel.
    """
    comm = older_head(channel, Stream.COMM_READ, Stream.COMM_WRITE)
    if comm >= 0 and now_ps - channel.head_ps[comm] > channel.mca.age_ps:
        return streams_in_turn(channel)
    stream = older_head(channel, Stream.COMPUTE_READ, Stream.COMPUTE_WRITE)
    if stream >= 0:
        return stream
    return comm if channel.queued[0] + channel.queued[1] < channel.mca.limit else -1
