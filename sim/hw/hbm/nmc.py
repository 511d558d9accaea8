"""Near-memory compute (T3): an UPDATE is an op-and-store by the ALUs at the DRAM banks.

On the command bus an update is a column command with write data. It needs the open row. It has a write's time on the
data bus and a write's recovery before a precharge or read. Because of the ALU, the next update waits CCDWL instead of
the column delay: in the same bank group (the paper's CCDWL = 2 x tCCD_L), in the same bank, anywhere in the channel,
or not at all (`spec.UpdateScope`; design.md 9.1: the scope decides the result). Reads and plain writes do not wait for
the ALU. `bank.alu` is the entry of `channel.group` with the time of the bank's ALU: its group, or its own number.
"""

from sim.spec import UpdateScope
from tracer.compile.jit import compiled


@compiled
def update_ready_ps(channel, bank):
    """Earliest time of the next update that the ALUs allow. Reads: channel, bank."""
    return max(channel.update_ps, channel.group[bank.alu].update_ps)


@compiled
def update_issued(channel, bank, now_ps):
    """Record an update issued at `now_ps`: its ALUs are busy for CCDWL. Reads: bank. Writes: channel."""
    if channel.update_scope == UpdateScope.CHANNEL:
        channel.update_ps = now_ps + channel.tCCDWL_ps
    elif channel.update_scope != UpdateScope.OFF:
        channel.group[bank.alu].update_ps = now_ps + channel.tCCDWL_ps
