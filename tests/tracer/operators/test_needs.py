"""Fields without effect on a kernel are refused."""

from dataclasses import MISSING
from enum import Enum
from itertools import combinations, product

import pytest

from tracer.data_type import DataType
from tracer.kernels import OPERATORS, fields_of, make_kernels
from traces.errors import UserError

SIZES = {"heads": 4, "experts": 8, "top_k": 2, "parameters": 65536}
SIZE = 64
ONE_PART = ("flash_attention", "splits")
"""1 where there is one part anyway: more are refused."""
SCALE = ("cross_entropy", "warps")
"""A fused backward pass has the warps of an element-wise kernel. Needs one of two fields, which NEEDS cannot say."""


def _values(kind, default):
    found = (False, True) if kind is bool else kind if issubclass(kind, Enum) else (1, 2, 3, 4, 8)
    return [value for value in found if value != default]


def _made(name, given):
    try:
        return make_kernels(name, **given)
    except UserError:
        return None


@pytest.mark.parametrize("name", [operator.NAME for operator in OPERATORS])
def test_every_field_has_an_effect_or_is_refused(name):
    """With any two switches on, each other field changes a kernel with one of its values at least. (Types of the same
    size are the same kernel.)"""
    needed = {field: SIZES.get(field, SIZE) for field, (_, default) in fields_of(name).items() if default is MISSING}
    others = {field: _values(*known) for field, known in fields_of(name).items() if field not in needed}
    others = {field: values for field, values in others.items() if not isinstance(values[0], DataType)}
    switches = [field for field, values in others.items() if isinstance(values[0], bool | Enum)]
    without = set()
    for on in (on for number in range(3) for on in combinations(switches, number)):
        for values in product(*(others[field] for field in on)):
            given = needed | dict(zip(on, values, strict=True))
            plain = _made(name, given)
            for field in others.keys() - on if plain else ():
                changed = [made for value in others[field] if (made := _made(name, given | {field: value}))]
                if changed and all(made == plain for made in changed):
                    without.add((name, field))
    assert without <= {ONE_PART, SCALE}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bias:rows=8,cols=64,backward=true,turns=2", "bias turns = 2: allowed with backward=false"),
        ("bias:rows=8,cols=64,backward=true,dimensions=2", "bias dimensions = 2: allowed with backward=false"),
        ("softmax:rows=8,cols=64,backward=true,passes=2", "softmax passes = 2: allowed with backward=false"),
        ("softmax:rows=8,cols=64,library=torch,exact=true", "softmax exact = true: allowed with library=generic"),
        ("rmsnorm:rows=8,cols=64,library=torch,keep=false", "rmsnorm keep = false: allowed with library=generic"),
        ("layernorm:rows=8,cols=64,backward=true,library=torch", "library = torch: allowed with backward=false"),
        ("layernorm:rows=8,cols=64,backward=true,shared_rows=true", "shared_rows = true: allowed with backward=false"),
        ("layernorm:rows=8,cols=64,fused=false", "layernorm fused = false: allowed with residual=true"),
        ("flash_attention:batch=1,heads=1,seq=8,backward=true,paged=true", "paged = true: allowed with backward=false"),
        ("gelu:rows=8,cols=64,backward=true,exact=true", "gelu exact = true: allowed with backward=false"),
        ("gelu:rows=8,cols=64,fused=false", "gelu fused = false: allowed with bias=true"),
        ("swiglu:rows=8,cols=64,backward=true,exact=true", "swiglu exact = true: allowed with backward=false"),
        ("cross_entropy:rows=8,vocab=64,passes=3", "cross_entropy passes = 3: allowed with fused=false"),
    ],
)
def test_a_field_without_effect_says_what_it_needs(text, message):
    with pytest.raises(UserError, match=message):
        make_kernels(text)
