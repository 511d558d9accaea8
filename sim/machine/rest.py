"""What must hold when a run ends: what entered was served, nothing is left over, nothing is negative.

A run for which it does not hold has no result. A user's policy that gave a wrong answer on the way is named first, for
what follows from it says less.
"""

import os
from collections.abc import Sequence

import numpy as np

from sim.hw.policy import VARIABLE
from sim.hw.request import NEVER, Stream
from sim.machine.build import UNITS, Node, units_of
from traces.errors import UserError

LEFT_OVER = (
    ("lsus", "loads_used", "loads that wait for data"),
    ("l1s", "entries_used", "L1 misses under way"),
    ("banks", "misses_used", "L2 misses under way"),
    ("banks", "reads_out", "reads of L2 under way"),
    ("mscs", "misses_used", "misses of the memory-side cache under way"),
    ("channels", "queued", "entries in DRAM queues"),
    ("cus", "residents", "workgroups on CUs"),
    ("peers", "waiting", "messages to CUs of a cluster"),
)
"""Field of Node, field of its records that must be 0 at rest, what it counts."""
FIFOS_TOLD = 4


class ConservationError(UserError):
    """A run that lost or doubled something: it has no result."""


class PolicyError(UserError):
    """A user's policy answered what it may not."""


def check_policy(node: Node) -> None:
    """Refuse wrong answers of a user's policy.

    Raises:
        PolicyError: names the policy, the channel, the time, what it returned and what is allowed.
    """
    number = int(np.argmin(node.channels["wrong_ps"]))
    channel = node.channels[number]
    if channel["wrong_ps"] == NEVER:
        return
    raise PolicyError(
        f"{os.environ.get(VARIABLE) or 'policy'}: pick(channel, now_ps) returned {channel['wrong_stream']} at "
        f"{channel['wrong_ps']} ps in channel {number}, allowed is a stream from 0 to {max(Stream)} whose head_ps is "
        f"below NEVER, or -1"
    )


def check_rest(node: Node, fifo_names: Sequence[str], what: str) -> None:
    """Check that a machine that has come to rest is empty and has served what entered.

    Args:
        fifo_names: of `node.fifos`. what: that has ended, for the message.

    Raises:
        ConservationError: names the first few things that are left over, negative or missing.
    """
    fill = node.fifos["tail"] - node.fifos["head"]
    faults = [f"fifo {fifo_names[k]} holds {fill[k]}" for k in np.flatnonzero(fill)[:FIFOS_TOLD]]
    for unit, field, words in LEFT_OVER:
        left = int(getattr(node, unit)[field].sum())
        faults += [f"{left} {words}"] if left else []
    records = units_of(node)
    for one in UNITS:
        for field in one.counters if one.name in records else ():
            least = records[one.name][field].min()
            faults += [f"{one.name}.{field} is {least}"] if least < 0 else []
    served, sent = int(node.banks["requests_served"].sum()), int(node.noc["request_packets"].sum())
    served -= int(node.banks["copy_requests"].sum())
    if not len(node.ports) and served != sent:
        faults.append(f"{sent} requests crossed the NoC, L2 served {served}")
    if faults:
        raise ConservationError(f"{what}: not conserved: {'; '.join(faults)}: this run has no result")
