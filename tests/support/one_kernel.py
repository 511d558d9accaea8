"""A trace of a kernel with few events and known program counters."""

import numpy as np

from traces.schema import EVENT, PLAIN_STRIDE, Kind
from traces.source import KernelInfo, Prefill, Workgroup


class OneKernel:
    """A kernel of one workgroup, two stores on line 52 and one event elsewhere."""

    def __init__(self, name, attributes):
        self.info = KernelInfo(name, (1, 1, 1), (32, 1, 1), 32, 8, 0, 0, 1, 1, attributes)

    def workgroups(self, start=0):
        events = np.zeros(3, EVENT)
        events["kind"] = Kind.STORE, Kind.STORE, Kind.EXIT
        events["pc"] = 0x10, 0x50, 0x70
        events["count"], events["width_bytes"], events["stride"] = 1, 4, 4
        events["inner"], events["mask"] = PLAIN_STRIDE, (1 << 32) - 1
        yield from [Workgroup(0, np.zeros(1, np.uint16), np.array([0, 3]), events, np.zeros(0, np.uint64))][start:]

    def fingerprint(self):
        return "0" * 64


class Trace:
    def __init__(self, *kernels):
        self.kernels = kernels

    def commands(self):
        return iter([Prefill(0, 1024), *self.kernels])

    def fingerprint(self):
        return "0" * 64
