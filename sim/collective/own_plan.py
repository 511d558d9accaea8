"""A user's topology and plan of T3's reduce-scatter: a Python file, named by `t3sim t3 --plan FILE` or `t3.plan`.

    def distances(gpus):                distances ahead (mod N) of the GPUs at the ends of the links, one per port
    def fused_regions(chunks, gpu):     Regions of that GPU's output (sim.collective.space)

`chunks` is sim.collective.chunks.Chunks. The file is plain Python: nothing is compiled, and it is called only before
the run. It runs with the rights of the user, so use only files that you trust. The plan is checked like any plan: it is
refused if a sum would be lost, doubled or never complete. Collectives on CUs (reduce-scatter of Sequential, all-gather)
pass chunks along the ring of distance 1.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from math import gcd
from numbers import Integral
from pathlib import Path
from typing import Any

from sim.collective.chunks import Chunks
from sim.collective.space import Region, Send
from sim.hw.request import Op
from sim.spec import Granularity
from traces.errors import UserError, error_in_file
from traces.own_file import running

FUNCTIONS = ("distances", "fused_regions")


@dataclass(frozen=True)
class OwnPlan:
    """A user's plan. It is used in place of a Topology.

    Attributes:
        name: name of the file, without folders.
        digest: SHA-256 of its text, which identifies the plan in results.
        functions: name in FUNCTIONS -> the user's function.
        path: path of the file; another process reads it again.
    """

    name: str
    digest: str
    functions: dict[str, Callable[..., Any]]
    path: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return load_plan, (self.path,)

    def distances(self, gpus: int) -> tuple[int, ...]:
        """Distance ahead (mod N) of the GPU at the other end of each port.

        Raises:
            UserError: not whole numbers from 1 to N - 1, each once, or links that leave a GPU unreachable.
        """
        found = self._called("distances", gpus)
        numbers = isinstance(found, Sequence) and all(type(far) is int and 1 <= far < gpus for far in found)
        if not numbers or not found or len(set(found)) < len(found):
            raise UserError(
                f"{self.name}: distances({gpus}): found {found!r}, allowed are whole numbers from 1 to {gpus - 1}, "
                "each once: how far ahead (mod N) the GPU at the end of each link is"
            )
        groups = gcd(gpus, *found)
        if groups > 1:
            raise UserError(
                f"{self.name}: distances({gpus}): found {tuple(found)}, which reach only one GPU in {groups}; allowed "
                "are links over which each GPU reaches all others"
            )
        return tuple(found)

    def fused_regions(self, chunks: Chunks, gpu: int) -> list[Region]:
        """Regions of a GPU's output: the destinations of the stores into each part of it.

        Raises:
            UserError: the function does not return Regions, or a field of one has a value that no plan of T3 has.
        """
        found = self._called("fused_regions", chunks, gpu)
        if not isinstance(found, Sequence) or not all(isinstance(region, Region) for region in found):
            raise UserError(f"{self.name}: fused_regions: found {found!r}, allowed is a list of sim.collective.space."
                            "Region")  # fmt: skip
        for number, region in enumerate(found):
            for field, value, allowed in _wrong_fields(region, chunks.tiles):
                raise UserError(
                    f"{self.name}: fused_regions: region {number} of GPU {gpu}: {field}: found {value!r}, allowed is "
                    f"{allowed}"
                )
        return list(found)

    def _called(self, function: str, *arguments: Any) -> Any:
        try:
            with running(self.path):
                return self.functions[function](*arguments)
        except UserError:
            raise
        except BaseException as error:  # it is the user's file: SystemExit too is a mistake in it
            raise error_in_file(self.path, self.name, error, function) from None


def _wrong_fields(region: Region, tiles: int) -> list[tuple[str, Any, str]]:
    """Fields of a region with values that no fused reduce-scatter has: name, value, what is allowed.

    Nothing adds receive buffers, no kernel polls, and the switch has no port of its own in a plan file.
    """
    to, sends, operations = region.to, region.sends, (Op.WRITE, Op.UPDATE)
    sent = [one for group in (to, sends) if isinstance(group, Sequence) for one in group if isinstance(one, Send)]
    operation = "Op.WRITE or Op.UPDATE"
    checks = [
        *((name, getattr(region, name), _whole(getattr(region, name)), "a tile") for name in ("first", "end")),
        ("expects", region.expects, _whole(region.expects), "the number of contributions"),
        ("chunk", region.chunk, _whole(region.chunk, tiles), f"a whole number from 0 to {tiles - 1}"),
        ("gate", region.gate, region.gate is None or _whole(region.gate, tiles), f"None or 0 to {tiles - 1}"),
        ("to", to, _all_are(to, (int, Send)), "a tuple of distances or Sends"),
        ("sends", sends, _all_are(sends, (Send,)), "a tuple of Sends"),
        ("op", region.op, region.op in operations, operation),
        ("granularity", region.granularity, region.granularity in list(Granularity), "one of Granularity"),
        *((name, getattr(region, name), not getattr(region, name), "False") for name in ("polled", "adds", "alone")),
        *(("Send.to", send.to, isinstance(send.to, int), "a distance") for send in sent),
        *(("Send.op", send.op, send.op in operations, operation) for send in sent),
        *(("Send.first", send.first, send.first is None or _whole(send.first), "None or a tile") for send in sent),
        *(("Send.slot", send.slot, send.slot is None, "None: nothing adds receive buffers") for send in sent),
    ]
    return [(name, value, allowed) for name, value, good, allowed in checks if not good]


def _whole(value: Any, end: int = 1 << 31) -> bool:
    return isinstance(value, Integral) and 0 <= int(value) < end


def _all_are(values: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(values, Sequence) and all(isinstance(one, kinds) for one in values)


def load_plan(path: str | Path) -> OwnPlan:
    """Read a plan file.

    Raises:
        UserError: there is no such file, it is not Python, or a function is missing.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"plan: no file {path}")
    specification = spec_from_file_location(f"t3sim_plan_{path.stem}", path)
    if specification is None or specification.loader is None:
        raise UserError(f"{path}: a plan is a Python file whose name ends in .py")
    module = module_from_spec(specification)
    try:
        with running(path):
            specification.loader.exec_module(module)
    except BaseException as error:
        raise error_in_file(path, str(path), error, "cannot be read") from None
    missing = [name for name in FUNCTIONS if not callable(getattr(module, name, None))]
    if missing:
        raise UserError(f"{path}: no function {missing[0]}; a plan has {' and '.join(FUNCTIONS)}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return OwnPlan(path.name, digest, {name: getattr(module, name) for name in FUNCTIONS}, os.path.abspath(path))
