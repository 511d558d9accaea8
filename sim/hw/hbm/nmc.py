"""Near-memory compute (T3): an UPDATE is an op-and-store by the ALUs at the DRAM banks.

On the command bus an update is a column command with write data: it needs the open row, takes a write's place on the
data bus and a write's recovery before precharge or read. The ALU makes the next update wait CCDWL instead of the
column delay: in the same bank group (the paper's CCDWL = 2 x tCCD_L), anywhere in the channel, or not at all
(`spec.UpdateScope`; design.md 9.1: the scope decides the result). Reads and plain writes do not wait for the ALU.
"""

from sim.spec import UpdateScope
from tracer.compile.jit import compiled


@compiled
def update_ready_ps(channel, group):
    """Earliest next update as far as the ALUs go."""
    return max(channel.update_ps, group.update_ps)


@compiled
def update_issued(channel, group, now_ps):
    """An update was issued at `now_ps`: its ALUs are busy for CCDWL."""
    if channel.update_scope == UpdateScope.SAME_GROUP:
        group.update_ps = now_ps + channel.tCCDWL_ps
    elif channel.update_scope == UpdateScope.CHANNEL:
        channel.update_ps = now_ps + channel.tCCDWL_ps
