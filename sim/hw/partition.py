"""Partitions of the L2: caches of equal size, each beside its share of the CUs. CU c is in partition c % partitions.

`L2Sharing` says how they share the lines:

    HOME     a line has one bank, its home. For the CUs of the other partitions it is far.
    COPIES   two partitions; each also keeps copies of the lines that its CUs read. A read goes to the bank of its
             own partition at the same place as the home. If that bank misses a line whose home is far, it asks the
             home instead of memory. Everything else (stores, atomics, uncached reads) goes to the home.
    PRIVATE  each partition caches all lines for its CUs and is not coherent with the others within a kernel.

A packet to or from another partition takes `far_ps` more each way, and first occupies a port of `l2.far_bytes_per_clk`:
of its CU, in each direction, or of the bank that waits for a copy. Far requests wait at their bank in fifos of their
own, so they do not hold up near ones. Far answers cross the crossbar like answers of a bank of their own. A store does
not drop the copies of its line (D41). Private caches are written back and emptied at the end of a kernel (D42).
"""

from sim.hw.bits import reciprocal
from sim.hw.request import Op
from sim.spec import L2Sharing
from tracer.compile.jit import compiled
from traces.schema import Cache
from traces.units import whole_period_ps

NEAR, FAR = 0, 1


def set_partitions(noc, machine):
    """Fill the constants of a NOC record. machine: sim.spec.Machine."""
    l2 = machine.l2
    noc["partitions"], noc["sharing"] = l2.partitions, l2.sharing
    noc["partition_banks"] = l2.banks // l2.partitions
    noc["home_banks"] = home_banks(l2)
    noc["channel_groups"] = machine.hbm.channels // (2 if has_copies(l2) else 1)
    noc["far_ps"] = far_ps(machine)
    noc["far_clk_per_byte"] = reciprocal(l2.far_bytes_per_clk)


def home_banks(l2):
    """Number of banks over which the lines are spread: all, or those of one partition if each caches all lines."""
    return l2.banks // l2.partitions if l2.sharing == L2Sharing.PRIVATE else l2.banks


def has_copies(l2):
    """Do the partitions keep copies of each other's lines?"""
    return l2.partitions > 1 and l2.sharing == L2Sharing.COPIES


def has_far(l2):
    """Do packets go from one partition to another?"""
    return l2.partitions > 1 and l2.sharing != L2Sharing.PRIVATE


def far_ps(machine):
    """Additional time of a packet between two partitions, each way."""
    return machine.l2.far_latency_clk * whole_period_ps(machine.noc.clock_MHz)


@compiled(inline=True)
def partition_of(noc, c):
    """Partition of CU c. Reads: noc."""
    return c % noc.partitions


@compiled(inline=True)
def route(noc, c, home, request):
    """(bank to which CU c sends a request, NEAR or FAR). home: the bank that the line's address selects.

    Reads: noc, request.
    """
    if noc.partitions == 1:
        return home, NEAR
    own = partition_of(noc, c)
    if noc.sharing == L2Sharing.PRIVATE:
        return own * noc.partition_banks + home, NEAR
    there = home // noc.partition_banks
    if there == own:
        return home, NEAR
    if noc.sharing == L2Sharing.COPIES and request.op == Op.READ and request.cache != Cache.UNCACHED:
        return home + (own - there) * noc.partition_banks, NEAR
    return home, FAR


@compiled(inline=True)
def home_of(noc, bank, home):
    """Number that a request carries as its bank: where its data from memory arrive. Reads: noc."""
    return bank if noc.sharing == L2Sharing.PRIVATE else home


@compiled(inline=True)
def is_far(noc, bank, source):
    """Does the answer of a bank go to another partition: to a CU there, or to a bank that keeps a copy? Reads: noc."""
    if noc.partitions == 1 or noc.sharing == L2Sharing.PRIVATE:
        return False
    return source >= noc.cus or bank // noc.partition_banks != partition_of(noc, source)
