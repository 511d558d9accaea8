"""Kernel sources by name: `make_kernel("gemm:m=512,n=512,k=256")`.

A text is NAME or NAME:field=value,field=value. To add a source, add one file and one line in KERNELS.
"""

import re
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from tracer.data_type import DataType
from tracer.gemm.architecture import GpuFacts, architecture
from tracer.gemm.fields import STANDS_FOR, GemmShorthand, gemm_of, names_kernel, on_machine
from tracer.gemm.problem import spelled_out
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from tracer.operators.adam import Adam
from tracer.operators.attention import Attention
from tracer.operators.bias import Bias
from tracer.operators.copy import Copy
from tracer.operators.cross_entropy import CrossEntropy
from tracer.operators.dropout import Dropout
from tracer.operators.embedding import Embedding
from tracer.operators.flash_attention import FlashAttention
from tracer.operators.gelu import Gelu
from tracer.operators.gradient_clip import GradientClip
from tracer.operators.kv_cache import KvCache
from tracer.operators.lamb import Lamb
from tracer.operators.layernorm import LayerNorm
from tracer.operators.moe import MoePermute, MoeRoute, MoeUnpermute
from tracer.operators.operator import Operator
from tracer.operators.quantize import Quantize
from tracer.operators.residual import Residual
from tracer.operators.rmsnorm import RmsNorm
from tracer.operators.rotary import Rotary
from tracer.operators.softmax import Softmax
from tracer.operators.swiglu import SwiGlu
from tracer.parameter_kernel import field_text
from tracer.streams import BufferStream, PointerChase
from tracer.workloads import named_sublayer
from traces.choices import allowed_names
from traces.errors import UserError
from traces.source import KernelSource


class KernelForm(NamedTuple):
    """How to make a kernel source from named fields.

    Attributes:
        parameters: dataclasses whose fields a text may give.
        make: takes the given fields by name; None = the only dataclass itself.
        instead: field -> the fields without a default that it replaces.
        per_machine: `make` takes the machine too, as `gpu`.
    """

    parameters: tuple[Any, ...]
    make: Callable[..., KernelSource] | None = None
    instead: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    per_machine: bool = False


OPERATORS: tuple[type[Operator], ...] = (
    *(
        LayerNorm,
        RmsNorm,
        Softmax,
        Attention,
        FlashAttention,
        KvCache,
        Gelu,
        SwiGlu,
        Dropout,
        Residual,
        Bias,
        Copy,
        Rotary,
        Embedding,
    ),
    *(CrossEntropy, Adam, Lamb, GradientClip, MoeRoute, MoePermute, MoeUnpermute, Quantize),
)
KERNELS = {
    "gemm": KernelForm(
        (GemmProblem, GemmShorthand, GemmKernel),
        gemm_of,
        {name: STANDS_FOR[name] for name in ("shape", "workload", "groups")},
        True,
    ),
    **{operator.NAME: KernelForm((operator,)) for operator in OPERATORS},
    "chase": KernelForm((PointerChase,)),
    "stream": KernelForm((BufferStream,)),
}
SWITCH = {"true": True, "false": False, "1": True, "0": False}
NUMBER = "<number>"
"""A whole number, in messages and help."""
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
DECIMAL_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?")
REPEATED = re.compile(r"([1-9][0-9]{0,3})\*(.+)")
"""A value several times: the number of times, the value."""
WRITTEN = {int: "a whole number of at most 18 digits", float: "a number such as 0.5 or 1e2, not negative"}
"""How these two are written, for messages."""
KEPT = "tile_m"
"""Field of a GEMM's kernel that `kernel_text` always writes: without any, a machine chooses another kernel."""
LISTING = "t3sim trace make --help"
"""The command that shows `describe_kernels()`."""


def make_kernel(text: str, gpu: GpuFacts | None = None, /, **changes: Any) -> KernelSource:
    """The kernel source that a text names.

    Args:
        gpu: the machine. A GEMM without a kernel of its own gets the library's choice for it, warps have its width, and
            its types are checked. None = `GemmKernel()`, 32 lanes, any type.
        text: NAME:field=value,...; values are whole numbers, `true` or `false`, lower-case names of enum members,
            and whole numbers with x between them (tile=128x128x32; groups=8*2x1 = eight times 2, then 1).
        changes: fields that are added to the fields of the text or replace them; values as text or as their type.

    Raises:
        UserError: names the field, what was found and what is allowed; an operator of several kernels.
    """
    source = _source(*read_kernel(text, changes), gpu)
    return source.kernel if isinstance(source, Operator) else source


def make_kernels(text: str, gpu: GpuFacts | None = None, /, **changes: Any) -> tuple[KernelSource, ...]:
    """All kernels of the operator that a text names, in order; as `make_kernel`, which allows one only."""
    source = _source(*read_kernel(text, changes), gpu)
    return source.kernels if isinstance(source, Operator) else (source,)


class NamedGemm(NamedTuple):
    """A GEMM of a text.

    Attributes:
        source: as `make_kernel` makes it.
        gpus: of its workload, 0 without a workload.
        by_library: did the library of the machine choose the kernel?
        dtype: as the text gives it.
    """

    source: GemmSource
    gpus: int
    by_library: bool
    dtype: DataType | None

    def gpus_or(self, given: int | None, field: str) -> int:
        """The number of GPUs: of the workload, or as given without one.

        Raises:
            UserError: none of both, or both; names the field.
        """
        if bool(self.gpus) == (given is not None):
            raise UserError(f"{field}: give it with a GEMM without workload= only; a workload has its own")
        return self.gpus if given is None else given


def make_gemm(text: str, gpu: GpuFacts | None = None, /, **changes: Any) -> NamedGemm:
    """A GEMM whose output a collective reduces.

    Raises:
        UserError: as `make_kernel`, or a kernel that is no GEMM or several.
    """
    name, given = read_kernel(text, changes)
    source = _source(name, given, gpu)
    if not isinstance(source, GemmSource):
        found, allowed = f"kernel: found {name}", "gemm"
        if name == "gemm":
            field = "groups" if "groups" in given else "batch"
            found, allowed = f"kernel gemm: {field}: found {given[field]}", "one GEMM"
        raise UserError(f"{found}, allowed is {allowed}: its output is what the collective reduces")
    gpus = named_sublayer(given["workload"])[1] if "workload" in given else 0
    return NamedGemm(source, gpus, gpu is not None and not names_kernel(given), given.get("dtype"))


def _source(name: str, given: dict[str, Any], gpu: GpuFacts | None) -> KernelSource:
    """The kernel source of a name and its fields, on a machine."""
    form = KERNELS[name]
    required = [field for field, (_, default) in fields_of(name).items() if default is MISSING]
    given_instead = {field for name in form.instead if name in given for field in form.instead[name]}
    missing = [field for field in required if field not in given and field not in given_instead]
    if missing:
        needed = " or ".join([", ".join(required), *form.instead])
        raise UserError(f"kernel {name}: {missing[0]}: missing; it needs {needed}")
    if gpu is not None:
        given = _on_machine(name, given, gpu)
    source: KernelSource = (form.make or form.parameters[0])(**given, **({"gpu": gpu} if form.per_machine else {}))
    return source


def _on_machine(name: str, given: dict[str, Any], gpu: GpuFacts) -> dict[str, Any]:
    """The fields with those that the machine gives: the width of its warps, the rate of a data type, ...

    Raises:
        UserError: a data type that the machine lacks.
    """
    fields = fields_of(name)
    types = [*architecture(gpu.library).types]
    if "mac_cost" not in fields and DataType.INT8 not in types:  # integers need no matrix unit
        types.append(DataType.INT8)
    for field, (kind, default) in fields.items():
        found = given.get(field, default)
        if kind is DataType and isinstance(found, DataType) and found not in types:
            raise UserError(
                f"kernel {name}: {field}: found {found}, which the machine lacks; allowed are {', '.join(types)}"
            )
    if KERNELS[name].per_machine:
        return given
    dtype = given.get("dtype", fields["dtype"][1] if "dtype" in fields else DataType.FP16)
    (owner,) = KERNELS[name].parameters
    found = owner.of_machine(gpu, dtype, given) if issubclass(owner, Operator) else on_machine(gpu, dtype)
    return {field: value for field, value in found.items() if field in fields} | given


def read_kernel(text: str, changes: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and given fields of a text with changes. Each value has the type of its field.

    Raises:
        UserError: as `make_kernel`, but fields may be missing.
    """
    name, _, rest = text.partition(":")
    name = name.strip()
    if name not in KERNELS:
        raise UserError(f"kernel: found {name!r}; {allowed_names(name, KERNELS, LISTING)}")
    given: dict[str, Any] = {}
    for part in rest.split(",") if rest.strip() else ():
        field, equals, value = (piece.strip() for piece in part.partition("="))
        if not (field and equals and value):
            raise UserError(f"kernel {name}: found {part!r}, allowed is field=value")
        if field in given:
            raise UserError(f"kernel {name}: {field}: found twice")
        given[field] = value
    allowed = fields_of(name)
    for field, value in (given | dict(changes)).items():
        if field not in allowed:
            raise UserError(f"kernel {name}: {field}: unknown field; {allowed_names(field, allowed, LISTING)}")
        given[field] = _typed(value, allowed[field][0], f"kernel {name}: {field}")
    return name, given


@cache
def fields_of(name: str) -> dict[str, tuple[Any, Any]]:
    """Field -> (type, default or dataclasses.MISSING) of a kernel source, needed fields first.

    `| None` is removed from the type.
    """
    types_and_defaults = {}
    for owner in KERNELS[name].parameters:
        hints = get_type_hints(owner)
        for field in fields(owner):
            kind = hints[field.name]
            if get_origin(kind) is types.UnionType:
                kind = next(option for option in get_args(kind) if option is not types.NoneType)
            types_and_defaults[field.name] = kind, field.default
    return dict(sorted(types_and_defaults.items(), key=lambda item: item[1][1] is not MISSING))


def kernel_text(described: Mapping[str, Any]) -> str:
    """The shortest text from which `make_kernel` makes a kernel with the same events; "" = not one of KERNELS.

    Args:
        described: `sim.run.inputs.kernel_input` of the kernel: `problem` and `kernel` of a GEMM, or `parameters`.
    """
    given = _given(described)
    names = [name for name in KERNELS if given and given.keys() <= fields_of(name).keys()]
    return f"{names[0]}:" + ",".join(_needed(names[0], given)) if names else ""


def _given(described: Mapping[str, Any]) -> dict[str, Any]:
    """Field -> value of all fields that are not None."""
    parts = [described.get(part, {}) for part in ("problem", "kernel", "parameters")]
    return {field: value for part in parts for field, value in part.items() if value is not None}


def _needed(name: str, given: dict[str, Any]) -> list[str]:
    """field=value of the fields without which the kernel would be another one."""
    wanted = _spelled_out(make_kernel(name, **given))
    for field in [field for field in given if field != KEPT]:
        fewer = {other: value for other, value in given.items() if other != field}
        with suppress(UserError):  # a field without a default
            if _spelled_out(make_kernel(name, **fewer)) == wanted:
                given = fewer
    return [f"{field}={field_text(value)}" for field, value in given.items()]


def _spelled_out(source: KernelSource) -> object:
    """What decides the events: defaults are replaced by the values that they mean."""
    return (spelled_out(source.problem), source.kernel) if isinstance(source, GemmSource) else source


class DescribedField(NamedTuple):
    """A field of a kernel source. default: as text, "" = needed or derived."""

    name: str
    allowed: str
    default: str
    needed: bool


def described_fields(name: str) -> list[DescribedField]:
    """The fields of a kernel source, needed ones first."""
    found = []
    for field, (kind, default) in fields_of(name).items():
        text = "" if default is MISSING or default is None else field_text(default)
        found.append(DescribedField(field, _allowed(kind), text, default is MISSING))
    return found


def describe_kernels() -> str:
    """Names, fields, types and defaults of all kernel sources, one paragraph for each source."""
    return "\n\n".join("\n".join([name, *map(_line, described_fields(name))]) for name in KERNELS)


def _line(field: DescribedField) -> str:
    default = f"  [{field.default}]" if field.default else ""
    return f"  {field.name}={field.allowed}{default}" + ("  (needed)" if field.needed else "")


def _typed(value: Any, kind: Any, where: str) -> Any:
    """A value in the type of its field. It is given as text or in that type."""
    if get_origin(kind) is tuple:
        pieces = _pieces(value) if isinstance(value, str) else value
        if isinstance(pieces, list | tuple) and (Ellipsis in get_args(kind) or len(pieces) == len(get_args(kind))):
            return tuple(_typed(piece, int, where) for piece in pieces)
    elif issubclass(kind, Enum):
        members = {field_text(member): member for member in kind.__members__.values()}
        name = field_text(value).lower()
        if name in members:
            return members[name]
    elif kind is bool and str(value).lower() in SWITCH:
        return SWITCH[str(value).lower()]
    elif kind is int and WHOLE_NUMBER.fullmatch(str(value)):
        return int(value)
    elif kind is float and DECIMAL_NUMBER.fullmatch(str(value)):
        return float(value)
    elif kind is str and isinstance(value, str):
        return value
    raise UserError(f"{where}: found {value!r}, allowed is {WRITTEN.get(kind) or _allowed(kind)}")


def _pieces(text: str) -> list[str]:
    """The values of a text, with x between them; 8*2 = eight times 2."""
    found = [(piece, REPEATED.fullmatch(piece)) for piece in text.split("x")]
    return [one for piece, times in found for one in ([times[2]] * int(times[1]) if times else [piece])]


def _allowed(kind: Any) -> str:
    """The allowed values of a field, for messages and help."""
    if get_origin(kind) is tuple:
        return "x".join([NUMBER] * len(get_args(kind))) + ("x..." if Ellipsis in get_args(kind) else "")
    if issubclass(kind, Enum):
        return "|".join(field_text(member) for member in kind.__members__.values())
    return {int: NUMBER, float: NUMBER, bool: "true|false", str: "text"}[kind]
