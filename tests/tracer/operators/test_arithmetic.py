"""Instructions of operators for each element and access; sums and moved rows wait for what they read."""

import numpy as np
import pytest

from tracer.kernels import make_kernels
from tracer.operators.index import Index, Spread
from traces.schema import Kind, Pipe

ELEMENTS = 64 * 1024


def per_element(kernel, pipe):
    """Instructions of a pipe for each element; 32 lanes."""
    events = np.concatenate([workgroup.events for workgroup in kernel.workgroups()])
    mine = (events["kind"] == Kind.COMPUTE) & (events["pipe"] == pipe)
    return int(events["count"][mine].sum()) * 32 / ELEMENTS


@pytest.mark.parametrize(
    ("text", "fma", "sfu"),
    [
        ("gelu:rows=64,cols=1024", [10], [2]),
        ("gelu:rows=64,cols=1024,exact=1", [26], [1]),
        ("gelu:rows=64,cols=1024,backward=1", [20], [2]),
        ("swiglu:rows=64,cols=1024", [4], [2]),
        ("swiglu:rows=64,cols=1024,exact=1", [24], [2]),
        ("swiglu:rows=64,cols=1024,backward=1", [10], [2]),
        ("swiglu:rows=64,cols=1024,fused=0", [4, 1], [2, 0]),
        ("dropout:rows=64,cols=1024", [2 + 12], [0]),
        ("dropout:rows=64,cols=1024,backward=1", [2], [0]),
        ("residual:rows=64,cols=1024", [1], [0]),
        ("residual:rows=64,cols=1024,dropout=1", [3 + 12], [0]),
        ("rotary:tokens=64,heads=8,kv_heads=8,head_dim=128", [6], [0]),  # for each pair
        ("adam:parameters=65536", [12], [2]),
        ("lamb:parameters=65536", [1, 14, 2, 2], [0, 2, 0, 0]),
        ("softmax:rows=64,cols=1024", [2 * 2 + 2], [1]),  # maximum and sum, then the output
        ("softmax:rows=64,cols=1024,keep=0", [2 + 2], [1]),  # both in one pass
        ("softmax:rows=64,cols=1024,keep=0,passes=2", [2 * 2 + 2], [1]),
        ("softmax:rows=64,cols=1024,exact=1", [2 * 7 + 23], [2]),
        ("softmax:rows=64,cols=1024,backward=1", [2 + 2], [0]),
        ("rmsnorm:rows=64,cols=1024", [2 + 2], [0]),
        ("layernorm:rows=64,cols=1024", [2 * 2 + 2], [0]),
    ],
)
def test_instructions_of_each_element(text, fma, sfu):
    kernels = make_kernels(text)
    assert [per_element(kernel, Pipe.FMA) for kernel in kernels] == fma
    assert [per_element(kernel, Pipe.SFU) for kernel in kernels] == sfu
    assert [kernel.flops for kernel in kernels] == [
        ELEMENTS * (one + other) for one, other in zip(fma, sfu, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("gelu:rows=64,cols=1024", 2 * 10),
        ("residual:rows=64,cols=1024", 3 * 10),
        ("rotary:tokens=64,heads=8,kv_heads=8,head_dim=128", 6 * 10),
        ("rotary:tokens=64,heads=8,kv_heads=8,head_dim=128,division=1", 6 * 10 + 20),
    ],
)
def test_instructions_of_each_access(text, places):
    """Ten for the place of each access to a tensor of eight elements of a lane; 16 to begin a warp of four accesses."""
    (kernel,) = make_kernels(text)
    assert per_element(kernel, Pipe.ALU) == pytest.approx((places + 16 / 4) / 8)


@pytest.mark.parametrize("choices", [1, 4])
def test_routing_finds_its_best_experts_one_after_the_other(choices):
    """Maximum and sum of the softmax, then a maximum for each choice."""
    route, _ = make_kernels(f"moe_route:tokens=64,experts=1024,top_k={choices}")
    assert per_element(route, Pipe.FMA) == 2 * (2 + choices) + (2 if route.outputs else 0)


def test_sums_of_a_row_change_their_places_in_shared_memory():
    """Else a warp could overwrite a value of the first sum that another warp still reads."""
    (kernel,) = make_kernels("layernorm:rows=2,cols=8192")
    events = next(kernel.workgroups()).events
    stores = events[(events["kind"] == Kind.STORE) & (events["space"] == 2)]
    assert len(stores) == 2 * kernel.warps and len(set(stores["base"].tolist())) == 2 * kernel.warps


def test_a_sum_over_workgroups_adds_every_part():
    """64 rows: each of 64 workgroups stores its part of every column."""
    _, total = make_kernels("bias:rows=64,cols=65536,backward=1")
    assert per_element(total, Pipe.FMA) == 64


def slots_behind(kernel):
    """For each access to memory and each sum of the first warp: what it is, and the loads that it waits for."""
    workgroup, loaded, found = next(kernel.workgroups()), {}, []
    for event in workgroup.events[: workgroup.first_event[1]]:
        needed = sorted(loaded[slot] for slot in loaded if int(event["wait"]) >> slot & 1)
        if event["kind"] == Kind.LOAD:
            loaded[int(event["slot"])] = int(event["base"])
        if event["kind"] != Kind.EXIT:
            found.append((Kind(event["kind"]), int(event["base"]), needed))
    return found


def test_rows_are_read_and_added_behind_their_indices():
    """A token's row and its place in the table; two tokens of a warp."""
    (kernel,) = make_kernels("embedding:tokens=8,hidden=128,backward=1")
    reduced = [needed for kind, _, needed in slots_behind(kernel) if kind == Kind.REDUCE]
    assert reduced == [sorted((kernel.index_at + 4 * token, kernel.rows_at + 256 * token)) for token in (0, 1)]
    (kernel,) = make_kernels("moe_unpermute:tokens=8,experts=4,top_k=2,hidden=256")
    events = slots_behind(kernel)
    loads = [needed for kind, base, needed in events if kind == Kind.LOAD and base < kernel.index_at]
    assert loads == [[kernel.index_at + 8 * token] for token in (0, 0, 1, 1)]
    (first, *_) = (needed for kind, _, needed in events[1:] if kind == Kind.COMPUTE)
    assert len(first) == 1 and first[0] < kernel.index_at
    assert per_element(kernel, Pipe.FMA) == 8 * 2 * 256 / ELEMENTS  # two products for each element


def test_the_choice_of_a_row_is_read_behind_its_target():
    _, loss = make_kernels("cross_entropy:rows=4,vocab=1000,fused=0")
    target, chosen = loss.tensors
    loads = [(base, needed) for kind, base, needed in slots_behind(loss) if kind == Kind.LOAD]
    assert loads[0] == (target.address, []) and loads[1] == (chosen.address, [target.address])


@pytest.mark.parametrize(("heads", "fold"), [(8, 2), (10, 4), (6, 8), (5, 1)])
def test_an_access_has_no_heads_of_two_tokens(heads, fold):
    """A warp could take several heads of 64 values (4 lanes each) at a time, but their tokens' angles differ."""
    (kernel,) = make_kernels(f"rotary:tokens=8,heads={heads},kv_heads=2,head_dim=64")
    assert kernel.row_lanes == 4 and kernel.fold == fold


def test_the_softmax_of_attention_is_that_of_a_matrix():
    _, softmax, _ = make_kernels("attention:batch=1,heads=1,seq=256,head_dim=64")
    assert per_element(softmax, Pipe.FMA) == 6 * 256 * 256 / ELEMENTS
    assert per_element(softmax, Pipe.SFU) == 256 * 256 / ELEMENTS


def test_a_token_goes_to_different_experts():
    """Sorted by expert, then by token: with one expert for both choices a token would follow itself."""
    tokens = Index(Spread.FROM_EXPERTS, 64, 1, 8, 2).listed[:, 0]
    assert (tokens[1:] != tokens[:-1]).all()
    assert sum(tokens[1:] < tokens[:-1]) == 8 - 1  # each expert begins again with its first token
