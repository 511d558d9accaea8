"""A profile of PyTorch: the kernels of one GPU in their order, each with the operator that launched it.

PyTorch writes the trace format of Chrome (`torch.profiler.profile(record_shapes=True)`, then `export_chrome_trace`):
one JSON object, or a list of events, also compressed with gzip. An event of the category `kernel` is a kernel on a GPU,
one of `cpu_op` is an operator; both have the same `External id`. Old versions write `Kernel` and `Operator`.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from traces.errors import UserError
from traces.units import NS_PER_US

GZIP_MAGIC = b"\x1f\x8b"
NUMBER = re.compile("[0-9]{1,18}")
KERNEL, OPERATORS = "kernel", ("cpu_op", "operator")
RECORD = "torch.profiler.profile(record_shapes=True) records it"

Shape = tuple[int, ...]


class Operator(NamedTuple):
    """An operator of PyTorch with its arguments.

    Attributes:
        number: `External id`.
        shapes, strides: of each argument; () = it is no tensor, or a list of tensors.
        types: of each argument, as PyTorch names them.
        values: of each argument that is no tensor, as text; () = not recorded.
        facts: everything that the event says.
    """

    name: str
    number: int
    shapes: tuple[Shape, ...]
    strides: tuple[Shape, ...]
    types: tuple[str, ...]
    values: tuple[str, ...]
    facts: Mapping[str, Any]


class Call(NamedTuple):
    """The kernels that one call of an operator launched, or one kernel of an operator that is not known.

    Attributes:
        kernels: their names.
        begin_ns, end_ns: since the first kernel of the profile. time_ns: sum of the times of the kernels.
        facts: everything that the event of the first kernel says.
    """

    operator: Operator | None
    kernels: tuple[str, ...]
    begin_ns: int
    end_ns: int
    time_ns: int
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.operator.name if self.operator else self.kernels[0]


class Profile(NamedTuple):
    """A profile.

    Attributes:
        gpu: name of the GPU, "" = not recorded.
        gpus: processes of the run. lanes: of a warp, 32 if not recorded.
        calls: in the order of their kernels.
        span_ns: from the begin of the first kernel to the end of the last one.
        busy_ns: of that, time in which at least one kernel runs.
    """

    name: str
    gpu: str
    gpus: int
    lanes: int
    calls: tuple[Call, ...]
    span_ns: int
    busy_ns: int

    @property
    def time_ns(self) -> int:
        """Sum of the times of all kernels."""
        return sum(call.time_ns for call in self.calls)


def read_profile(path: str | Path) -> Profile:
    """The profile in a file.

    Raises:
        UserError: the file cannot be read or is no profile, it has no kernel, no time or no shape, or kernels of
            several GPUs.
    """
    path = Path(path)
    content = _content(path)
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise UserError(f"{path}: found no list traceEvents, allowed is a profile of PyTorch")
    found = [event for event in events if isinstance(event, dict) and event.get("ph") == "X"]
    operators = {one.number: one for one in _operators(path, found)}
    kernels = _kernels(path, found)
    if not any(shape for operator in operators.values() for shape in operator.shapes):
        raise UserError(f"{path}: found no operator with the shapes of its arguments; {RECORD}")
    if not any(kernel.time_ns for kernel in kernels):
        raise UserError(f"{path}: found no kernel that takes time, allowed is a profile of PyTorch")
    whole = content if isinstance(content, dict) else {}
    device, world = _first(whole.get("deviceProperties")), whole.get("distributedInfo")
    gpus = world.get("world_size") if isinstance(world, dict) else 1
    spans = [(kernel.begin_ns, kernel.begin_ns + kernel.time_ns) for kernel in kernels]
    return Profile(
        name=path.name,
        gpu=str(device.get("name") or ""),
        gpus=gpus if isinstance(gpus, int) and gpus > 0 else 1,
        lanes=64 if device.get("warpSize") == 64 else 32,
        calls=tuple(_calls(kernels, operators)),
        span_ns=max(end for _, end in spans),
        busy_ns=_covered(spans),
    )


class _Kernel(NamedTuple):
    name: str
    number: int
    begin_ns: int
    time_ns: int
    facts: Mapping[str, Any]


def _content(path: Path) -> Any:
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged gzip file: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: found no JSON ({error}), allowed is a profile of PyTorch") from None


def _first(found: Any) -> Mapping[str, Any]:
    return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}


def whole_number(found: Any) -> int:
    """A whole number, also as text; -1 = it is none."""
    return int(found) if isinstance(found, int) or (isinstance(found, str) and NUMBER.fullmatch(found)) else -1


def _facts(event: Mapping[str, Any]) -> Mapping[str, Any]:
    facts = event.get("args")
    return facts if isinstance(facts, dict) else {}


def _number(facts: Mapping[str, Any]) -> int:
    """`External id` of an event, -1 = none."""
    return whole_number(facts.get("External id", facts.get("external id")))


def _operators(path: Path, events: Iterable[Mapping[str, Any]]) -> Iterable[Operator]:
    for event in events:
        facts = _facts(event)
        if str(event.get("cat")).lower() in OPERATORS and _number(facts) >= 0:
            lists = [facts.get(name) for name in ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")]
            shapes, strides, types, values = ([] if one is None else one for one in lists)
            if not all(isinstance(one, list) for one in (shapes, strides, types, values)):
                raise UserError(f"{path}: operator {event.get('name')!r}: found arguments that are no lists")
            yield Operator(
                name=str(event.get("name")),
                number=_number(facts),
                shapes=tuple(map(_shape, shapes)),
                strides=tuple(map(_shape, strides)),
                types=tuple(map(str, types)),
                values=tuple(map(str, values)),
                facts=facts,
            )


def _shape(found: Any) -> Shape:
    """Shape of an argument; () if it is none, or several."""
    whole = isinstance(found, list) and all(isinstance(one, int) and one >= 0 for one in found)
    return tuple(found) if whole else ()


def _kernels(path: Path, events: Iterable[Mapping[str, Any]]) -> list[_Kernel]:
    """The kernels in their order. Times are since the first one."""
    found = [event for event in events if str(event.get("cat")).lower() == KERNEL]
    if not found:
        raise UserError(f"{path}: found no kernel of a GPU; {RECORD} if the GPU is among its activities")
    devices = {str(_facts(event).get("device", event.get("pid"))) for event in found}
    if len(devices) > 1:
        names = ", ".join(sorted(devices))
        raise UserError(f"{path}: found kernels of GPUs {names}, allowed is a profile of one GPU: of one process")
    for event in found:
        for name in ("ts", "dur"):
            if not isinstance(event.get(name), int | float) or not 0 <= event[name] < 1e15:
                raise UserError(f"{path}: kernel {event.get('name')!r}: {name}: found {event.get(name)!r}, "
                                "allowed is a number of microseconds")  # fmt: skip
    first_us = min(event["ts"] for event in found)
    kernels = [
        _Kernel(
            name=str(event.get("name")),
            number=_number(_facts(event)),
            begin_ns=round((event["ts"] - first_us) * NS_PER_US),
            time_ns=round(event["dur"] * NS_PER_US),
            facts=_facts(event),
        )
        for event in found
    ]
    return sorted(kernels, key=lambda kernel: kernel.begin_ns)


def _calls(kernels: list[_Kernel], operators: Mapping[int, Operator]) -> Iterable[Call]:
    """One call for all kernels of an operator, also if kernels of other streams begin between them."""
    launched: dict[int, list[_Kernel]] = {}
    for place, kernel in enumerate(kernels):
        launched.setdefault(kernel.number if kernel.number in operators else -1 - place, []).append(kernel)
    for number, own in launched.items():
        yield Call(
            operator=operators.get(number),
            kernels=tuple(kernel.name for kernel in own),
            begin_ns=own[0].begin_ns,
            end_ns=max(kernel.begin_ns + kernel.time_ns for kernel in own),
            time_ns=sum(kernel.time_ns for kernel in own),
            facts=own[0].facts,
        )


def _covered(spans: list[tuple[int, int]]) -> int:
    """Length of the union of spans, which are in order of their begin."""
    covered = reached = 0
    for begin, end in spans:
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return covered
