"""What an exchange does to the kernels beside it: it keeps CUs.

Each channel of a library keeps a CU until the exchange has ended. A kernel beside it has the other CUs. Matrix work
takes longer then, often by a whole wave of tiles. Kernels of other classes are bound by memory and keep their time
(assumed), and bandwidth is not shared out (D54).
"""

from collections.abc import Iterable, Iterator

from sim.presets import Preset
from sim.run.library_preset import with_values
from sim.scenario.exchange import library_run
from tracer.models.schedule import Block, Exchange, Lane, OperatorClass, Step

SLOWED = (OperatorClass.MATRIX, OperatorClass.ATTENTION)
"""Classes of kernels that take longer on fewer CUs."""


def kept_cus(preset: Preset, exchange: Exchange) -> int:
    """CUs that an exchange keeps: the channels that the library of the machine takes; 0 on a machine without one.

    A plain exchange keeps as many: with all CUs nothing could run beside it.
    """
    run = library_run(preset, exchange)
    return run.choice.channels if run else 0


def with_fewer_cus(preset: Preset, kept: int) -> Preset:
    """The machine without `kept` CUs, and without those that its L2 partitions would not have alike."""
    cu, parts = preset.machine.cu, preset.machine.l2.partitions
    count = max(parts, (cu.count - kept) // parts * parts)
    return with_values(preset, {"cu.count": (count, "derived")}, f"{cu.count} CUs; an exchange beside it keeps {kept}")


def kernels_beside(blocks: Iterable[Block]) -> Iterator[tuple[Step, Exchange]]:
    """(kernel, exchange) that may run at the same time: neither waits for the other. Only kernels of SLOWED.

    An exchange that a block leaves behind may run beside all that comes later.
    """
    left: list[Step] = []
    for block in blocks:
        left += [step for step in block.steps if step.name in block.leaves and block.repeats > 1]
        open_steps: list[Step] = []
        waits: dict[str, set[str]] = {}
        before: tuple[str, ...] = ()
        for step in block.steps:
            after = step.after or before
            waits[step.name] = set(after).union(*(waits[name] for name in after))
            before = (step.name,)
            if step.lane != Lane.COMPUTE:
                open_steps.append(step)
            elif step.operator_class in SLOWED:
                found = [*left, *(each for each in open_steps if each.name not in waits[step.name])]
                yield from ((step, each.work) for each in found if isinstance(each.work, Exchange))
        left += [step for step in open_steps if step.name in block.leaves and step not in left]
