"""The workload table against the paper's shapes, written out."""

import re

import pytest

from tracer.gemm.source import GemmSource
from tracer.workloads import DEFAULT_KERNEL, LAYERS, MODELS, PAPER_CASES, sublayer
from traces.errors import UserError

K_OF_T_NLG = {
    8: {"op": 532, "fc2": 2128, "fc1": 2128, "ip": 1596},
    16: {"op": 266, "fc2": 1064, "fc1": 1064, "ip": 798},
}


@pytest.mark.parametrize("tp", K_OF_T_NLG)
@pytest.mark.parametrize("layer", LAYERS)
def test_t_nlg_slices(layer, tp):
    problem = sublayer("t-nlg", layer, tp)
    assert (problem.m, problem.n, problem.k) == (8192, 4256, K_OF_T_NLG[tp][layer])
    assert problem.output_bytes == 2 * 8192 * 4256
    assert problem.a.pitch_bytes % 16 == problem.b.pitch_bytes % 16 == problem.c.pitch_bytes % 16 == 0
    assert problem.a.pitch_bytes - problem.k * 2 < 16


@pytest.mark.parametrize("model, tokens", [("mega-gpt-2", 16384), ("t-nlg", 8192), ("gpt-3", 2048), ("palm", 2048)])
def test_tokens(model, tokens):
    assert MODELS[model].tokens == tokens


def test_sixteen_cases_all_run_on_the_default_kernel():
    assert len(set(PAPER_CASES)) == 16
    everything = [*PAPER_CASES, *((model, layer, 32) for model in ("gpt-3", "palm", "mt-nlg") for layer in LAYERS)]
    for case in everything:
        source = GemmSource(sublayer(*case), DEFAULT_KERNEL)
        assert source.workgroup(source.info.workgroups - 1).events.size > 0


@pytest.mark.parametrize(
    "case, message",
    [
        (
            ("gpt-4", "op", 8),
            "model 'gpt-4' is unknown; did you mean gpt-3? allowed are mega-gpt-2, t-nlg, gpt-3, palm, mt-nlg",
        ),
        (("t-nlg", "fc3", 8), "layer 'fc3' is unknown; did you mean fc2 or fc1? allowed are op, fc2, fc1, ip"),
        (("t-nlg", "op", 0), "tp = 0"),
        (("t-nlg", "op", 5), "tp = 5: must divide K = 4256"),
    ],
)
def test_wrong_names_list_the_right_ones(case, message):
    with pytest.raises(UserError, match=re.escape(message)):
        sublayer(*case)
