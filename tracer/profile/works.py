"""What the calls of a profile are for t3sim: a kernel's text (`tracer.kernels`), or an exchange.

A call is known by the name of its operator and the shapes of its arguments. Where operators of PyTorch and of the
libraries vLLM, SGLang and AITER have their arguments is a table below. Norms, softmax and element-wise kernels of
PyTorch are its own (`tracer.operators.library`, `tracer.profile.loops`). Matrices are row-major: on the machines of
today the layout changes the time of a GEMM by up to 3 %. What is not in the tables, or has arguments of mixed types
or, without divisions for its places, in another order, is no work.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from tracer.data_type import DataType
from tracer.models.kernel_text import kernel_of
from tracer.models.schedule import Exchange, OperatorClass
from tracer.profile.kineto import Call, Operator, Profile, Shape, whole_number
from tracer.profile.loops import cat_of, flat, loop_of, output_shape, row_loop

TYPES = {
    "c10::BFloat16": DataType.BF16,
    "c10::Half": DataType.FP16,
    "float": DataType.FP32,
    "double": DataType.FP64,
    "signed char": DataType.INT8,
    **{f"c10::Float8_{kind}": DataType.FP8 for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")},
}
"""Types of PyTorch."""
OF_BYTES = {1: DataType.INT8, 2: DataType.BF16, 4: DataType.FP32, 8: DataType.FP64}
"""A type of a size."""
TF32_KERNELS = ("tf32", "s1688gemm", "xf32")
"""Parts of the names of kernels that multiply `float` with reduced precision (cuBLAS, CUTLASS, hipBLASLt)."""
SCALED_INTO, INT_MM = "_C::cutlass_scaled_mm", "aten::_int_mm"
GEMMS = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_scaled_mm", INT_MM), 0),
    **dict.fromkeys(("sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm"), 0),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::_addmm_activation", SCALED_INTO), 1),
}
"""Matrix products, and the place of their first matrix. The second one follows."""
OUT_TYPES = {"aten::_scaled_mm": 6, "sgl_kernel::fp8_scaled_mm": 4, "sgl_kernel::int8_scaled_mm": 4}
"""Matrix products whose output has a type of its own, and the place of the number of this type in SCALAR_TYPES."""
SCALAR_TYPES = {
    "5": DataType.FP16,
    "6": DataType.FP32,
    "15": DataType.BF16,
    **dict.fromkeys(("23", "24", "25", "26"), DataType.FP8),
}
"""Numbers of types in PyTorch (c10/core/ScalarType.h)."""
ALIGNED_BYTES = 16
"""Where rows of all matrices are multiples of it, padding changes no kernel."""
FLASH = {
    "aten::_flash_attention_forward": (0, 8),
    "aten::_flash_attention_backward": (1, 11),
}
"""Fused attention: the places of the queries [batch, tokens, heads, head size] and of `is_causal`."""
RMSNORMS = {
    **dict.fromkeys(("_C::rms_norm", "aiter::rmsnorm", "sgl_kernel::rmsnorm"), (1, False)),
    **dict.fromkeys(("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm"), (0, True)),
    "aiter::add_rmsnorm": (1, True),
}
"""RMSNorm: the place of its input, and does it add a residual first?"""
SOFTMAX_BACK, GELU_BACK, COPY = "aten::_softmax_backward_data", "aten::gelu_backward", "aten::copy_"
ELEMENT_WISE = {
    *("aten::add", "aten::sub", "aten::mul", "aten::div", "aten::add_", "aten::mul_", "aten::neg", "aten::pow"),
    *("aten::exp", "aten::rsqrt", "aten::sigmoid", "aten::silu", "aten::tanh", "aten::relu", COPY),
}
"""They read one or two tensors and write one."""
COLLECTIVES = {
    **dict.fromkeys(("allreduce", "allreduce_coalesced"), "all_reduce"),
    **dict.fromkeys(("_allgather_base", "allgather", "allgather_into_tensor_coalesced"), "all_gather"),
    **dict.fromkeys(("_reduce_scatter_base", "reduce_scatter", "reduce_scatter_tensor_coalesced"), "reduce_scatter"),
    **dict.fromkeys(("all_to_all", "all_to_allv", "alltoall", "alltoall_base"), "all_to_all"),
}
"""`Collective name` of a kernel of NCCL or RCCL."""
ELEMENT_BYTES = {
    **dict.fromkeys(("Float", "Int", "float", "int"), 4),
    **dict.fromkeys(("Double", "Long", "double", "long int"), 8),
    **dict.fromkeys(("Half", "BFloat16", "Short", "c10::Half", "c10::BFloat16"), 2),
}
"""Bytes of an element of a collective; 1 for all other types."""
ALL_REDUCES = {
    "symm_mem::multimem_all_reduce_": 0,
    "symm_mem::one_shot_all_reduce": 0,
    "symm_mem::two_shot_all_reduce_": 0,
    "_C_custom_ar::all_reduce": 1,
    "sgl_kernel::all_reduce": 1,
}
"""All-reduces of all GPUs that are no kernels of a library, and the place of their buffer."""
MULTIMEM = "multimem"
"""Part of the name of an all-reduce that the switch does."""


def work_of(call: Call, profile: Profile) -> tuple[OperatorClass, str | Exchange] | None:
    """Class and work of a call; None if it is not known."""
    exchange = _collective(call.facts) or _collective(call.operator.facts if call.operator else {})
    if exchange or call.operator is None:
        return (OperatorClass.COMMUNICATION, exchange) if exchange else None
    if call.name in ALL_REDUCES:
        place = ALL_REDUCES[call.name]
        shape, element = _shape(call.operator, place), ELEMENT_BYTES.get(_type(call.operator, place), 1)
        exchange = Exchange("all_reduce", prod(shape) * element, profile.gpus)
        return (OperatorClass.COMMUNICATION, exchange) if shape and profile.gpus > 1 else None
    operator_class, kind = KNOWN.get(call.name, (OperatorClass.NORM, None))
    text = kind(call.operator, call, profile) if kind else ""
    return (operator_class, text) if text else None


def output_bytes(call: Call) -> int:
    """Bytes of the output of a GEMM with one result."""
    operator = call.operator
    assert operator is not None
    place, out = GEMMS[call.name], _output_type(operator)
    a, b = _shape(operator, place), _shape(operator, place + 1)
    element_bytes = out.bytes if out else ELEMENT_BYTES.get(_type(operator, place), 1)
    return a[0] * b[1] * element_bytes if len(a) == 2 else 0


def _output_type(operator: Operator) -> DataType | None:
    """Type of the output of a GEMM; None = that of its first matrix."""
    if operator.name == SCALED_INTO:
        return _dtype(operator, 0)
    if operator.name == INT_MM:
        return DataType.FP32  # whole numbers of the same size
    return SCALAR_TYPES.get(_value(operator, OUT_TYPES[operator.name])) if operator.name in OUT_TYPES else None


def _shape(operator: Operator, place: int) -> Shape:
    return operator.shapes[place] if place < len(operator.shapes) else ()


def _type(operator: Operator, place: int) -> str:
    return operator.types[place] if place < len(operator.types) else ""


def _value(operator: Operator, place: int) -> str:
    return operator.values[place] if place < len(operator.values) else ""


def _dtype(operator: Operator, place: int) -> DataType | None:
    return TYPES.get(_type(operator, place))


def _text(name: str, operator: Operator, place: int, **fields: object) -> str:
    """Text of a kernel with the type of an argument, "" if t3sim has no such type."""
    dtype = _dtype(operator, place)
    return kernel_of(name, dtype, **fields) if dtype else ""


def _gemm(operator: Operator, call: Call, profile: Profile) -> str:
    place = GEMMS[operator.name]
    a, b, dtype = _shape(operator, place), _shape(operator, place + 1), _dtype(operator, place)
    fits = len(a) == len(b) in (2, 3) and a[-1] == b[-2] and a[:-2] == b[:-2] and 0 not in (*a, *b)
    if not fits or dtype is None:
        return ""
    if dtype == DataType.FP32 and any(part in kernel for part in TF32_KERNELS for kernel in call.kernels):
        dtype = DataType.TF32
    batch = a[0] if len(a) == 3 and a[0] > 1 else False
    odd = any(width * dtype.bytes % ALIGNED_BYTES for width in (a[-1], b[-1]))
    out = _output_type(operator) or dtype
    out_dtype, pad = out if out.bytes != dtype.bytes else False, "dense" if odd else False
    return kernel_of("gemm", dtype, m=a[-2], n=b[-1], k=a[-1], batch=batch, out_dtype=out_dtype, pad=pad)


def _flash(operator: Operator, call: Call, profile: Profile) -> str:
    place, causal = FLASH[operator.name]
    q, k, v = (_shape(operator, place + number) for number in range(3))
    if not len(q) == len(k) == 4 or k != v or _value(operator, causal) not in ("True", "False"):
        return ""
    return _text(
        *("flash_attention", operator, place),
        batch=q[0],
        heads=q[2],
        kv_heads=k[2],
        seq=k[1],
        queries=q[1] if q[1] != k[1] else False,
        head_dim=q[3],
        causal=_value(operator, causal).lower(),
        **{"backward": True, "version": 2} if operator.name.endswith("backward") else {"library": "torch"},
    )


def _layernorm(operator: Operator, call: Call, profile: Profile) -> str:
    x, weight = _shape(operator, 0), _shape(operator, 2)
    if not x or weight not in ((), x[-1:]):
        return ""
    return _text("layernorm", operator, 0, rows=prod(x[:-1]), cols=x[-1], stats=True, library="torch")


def _rmsnorm(operator: Operator, call: Call, profile: Profile) -> str:
    place, residual = RMSNORMS[operator.name]
    x = _shape(operator, place)
    rows = prod(x[:-1])
    launched = row_loop(call, rows, profile.lanes)
    return _text("rmsnorm", operator, place, rows=rows, cols=x[-1], residual=residual, **launched) if x else ""


def _softmax(operator: Operator, call: Call, profile: Profile) -> str:
    backward = operator.name == SOFTMAX_BACK
    x, last = _shape(operator, 0), _value(operator, 2 if backward else 1)
    if not x or last not in ("-1", str(len(x) - 1)):
        return ""
    return _text(
        *("softmax", operator, 0),
        rows=prod(x[:-1]),
        cols=x[-1],
        backward=backward,
        library="torch",
    )


def _gate(operator: Operator, call: Call, profile: Profile) -> str:
    x = _shape(operator, 0)
    return _text("swiglu", operator, 0, rows=prod(x[:-1]), cols=x[-1]) if x else ""


def _rotary(operator: Operator, call: Call, profile: Profile) -> str:
    q, k, head_dim = _shape(operator, 1), _shape(operator, 2), whole_number(_value(operator, 3))
    if not len(q) == len(k) == 2 or head_dim < 1:
        return ""
    heads, kv_heads = q[1] // head_dim, k[1] // head_dim
    return _text("rotary", operator, 1, tokens=q[0], heads=heads, kv_heads=kv_heads, head_dim=head_dim)


def _kv_cache(operator: Operator, call: Call, profile: Profile) -> str:
    """Keys and values [tokens, heads, head size], or [tokens, all of them]."""
    k = _shape(operator, 0)
    if len(k) not in (2, 3):
        return ""
    return _text("kv_cache", operator, 0, tokens=k[0], kv_heads=k[1] if len(k) == 3 else 1, head_dim=k[-1])


def _gelu(operator: Operator, call: Call, profile: Profile) -> str:
    backward = operator.name == GELU_BACK
    return _loop_text("gelu", operator, call, profile, 0, backward=backward, exact=not backward)


def _loop_text(name: str, operator: Operator, call: Call, profile: Profile, place: int, **fields: object) -> str:
    """Text of an element-wise kernel with the type of an argument, "" if it has no element. Of a copy: if all tensors
    are smaller than the output, the largest one is read by several of its rows."""
    shape = output_shape(operator)
    if 0 in shape:
        return ""
    loop = loop_of(call, operator, profile.lanes)
    rows, cols = flat(shape, loop.vector, profile.lanes)
    if name == "copy":
        share = min(rows, prod(shape) // max(prod(each) for each in operator.shapes if each))
        fields["share"] = share > 1 and share
    return _text(name, operator, place, rows=rows, cols=cols, **fields, **loop.fields())


def _element_wise(operator: Operator, call: Call, profile: Profile) -> str:
    """One tensor in and one out, or two in: tensors smaller than the output stay in the caches."""
    elements = prod(output_shape(operator))
    tensors = [place for place, shape in enumerate(operator.shapes) if shape]
    whole = [place for place in tensors if prod(operator.shapes[place]) == elements]
    orders = {_order(operator, place) for place in whole}
    if elements < 1 or (len(orders) > 1 and not loop_of(call, operator, profile.lanes).dimensions):
        return ""
    types = [_dtype(operator, place) for place in whole or tensors]
    if operator.name == COPY and len(whole) == 2:
        out = types[0] if types[0] != types[1] else False
        return "" if out is None else _loop_text("copy", operator, call, profile, whole[1], out=out)
    if len(set(types)) > 1:
        return ""
    return _loop_text("residual" if len(whole) == 2 else "copy", operator, call, profile, (whole or tensors)[0])


def _cat(operator: Operator, call: Call, profile: Profile) -> str:
    """A copy of all tensors of a list, whose elements have no type but a size."""
    dims = operator.facts.get("Input Dims")
    lists = dims[0] if isinstance(dims, list) and dims and isinstance(dims[0], list) else []
    whole = all(isinstance(one, list) and all(isinstance(size, int) and size >= 0 for size in one) for one in lists)
    sizes = [prod(one) for one in lists] if whole else []
    found = cat_of(call, sizes, profile.lanes)
    if found is None or found[0] not in OF_BYTES:
        return ""
    rows, cols = flat((sum(sizes),), 1, profile.lanes)
    return kernel_of("copy", OF_BYTES[found[0]], rows=rows, cols=cols, **found[1].fields()) if rows else ""


def _order(operator: Operator, place: int) -> Shape:
    """Shape and strides of an argument, without dimensions of one element."""
    shape = operator.shapes[place]
    strides = operator.strides[place] if place < len(operator.strides) else ()
    if len(strides) != len(shape):
        return shape
    return tuple(number for size, stride in zip(shape, strides, strict=True) if size > 1 for number in (size, stride))


def _collective(facts: Mapping[str, Any]) -> Exchange | None:
    """The exchange of a kernel of a communication library, from its event or that of its operator."""
    kind = COLLECTIVES.get(str(facts.get("Collective name")))
    found = [facts.get(name) for name in ("Group size", "In msg nelems", "Out msg nelems")]
    gpus, sent, received = (number if isinstance(number, int) else 0 for number in found)
    if kind is None or gpus < 2 or sent < 1 or received < 1:
        return None
    element = ELEMENT_BYTES.get(str(facts.get("dtype")), 1)
    return Exchange(kind, element * (received if kind == "all_gather" else sent), gpus)


Kind = Callable[[Operator, Call, Profile], str]
KNOWN: dict[str, tuple[OperatorClass, Kind]] = {
    **dict.fromkeys(GEMMS, (OperatorClass.MATRIX, _gemm)),
    **dict.fromkeys(FLASH, (OperatorClass.ATTENTION, _flash)),
    **dict.fromkeys(("aten::_softmax", SOFTMAX_BACK), (OperatorClass.ATTENTION, _softmax)),
    "aten::cat": (OperatorClass.NORM, _cat),
    "aten::native_layer_norm": (OperatorClass.NORM, _layernorm),
    **dict.fromkeys(RMSNORMS, (OperatorClass.NORM, _rmsnorm)),
    **dict.fromkeys(("aten::gelu", GELU_BACK), (OperatorClass.NORM, _gelu)),
    **dict.fromkeys(("_C::silu_and_mul", "sgl_kernel::silu_and_mul"), (OperatorClass.NORM, _gate)),
    **dict.fromkeys(("_C::rotary_embedding", "sgl_kernel::rotary_embedding"), (OperatorClass.NORM, _rotary)),
    **dict.fromkeys(("_C_cache_ops::reshape_and_cache_flash", "sglang::store_cache"), (OperatorClass.NORM, _kv_cache)),
    **dict.fromkeys(ELEMENT_WISE, (OperatorClass.NORM, _element_wise)),
}
"""Operator -> its class, and the function that makes its text from the arguments, "" if it cannot."""


def in_switch(call: Call) -> bool:
    """Is the call an all-reduce that the switch does?"""
    return call.name in ALL_REDUCES and MULTIMEM in call.name


def reduced_gemms(works: Sequence[str | Exchange | None], calls: Sequence[Call]) -> Iterator[tuple[int, int]]:
    """(place of a GEMM, place of the exchange that reduces its output).

    It is the last GEMM that has ended before the exchange begins, if its output has the size of the exchange.
    """
    begun: set[int] = set()  # GEMMs that no exchange reduces yet
    for place, work in enumerate(works):
        call = calls[place]
        if isinstance(work, Exchange) and work.kind in ("all_reduce", "reduce_scatter"):
            ended = {gemm for gemm in begun if calls[gemm].end_ns <= call.begin_ns}
            begun -= ended
            if ended:
                last = max(ended, key=lambda gemm: (calls[gemm].end_ns, gemm))
                if works[last] and output_bytes(calls[last]) == work.bytes:
                    yield last, place
                else:
                    begun.add(last)
        elif call.name in GEMMS:
            begun.add(place)
