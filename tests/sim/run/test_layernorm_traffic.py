"""Layer normalisation on machines: traffic of L1, L2 and DRAM in closed form."""

import pytest

from sim.presets import load_preset
from sim.run.one_gpu import simulate
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence

ROWS = 64


def totals(text, preset, *overrides):
    return simulate(CommandSequence([make_kernel(text)]), load_preset(preset, overrides)).totals


@pytest.mark.parametrize(("cols", "passes"), [(1024, 1), (8192, 1), (32768, 2)])
@pytest.mark.parametrize("stats", ["false", "true"])
def test_traffic_where_l2_holds_weight_bias_and_the_rows_in_flight(cols, passes, stats):
    found = totals(f"layernorm:rows={ROWS},cols={cols},stats={stats}", "t3_2024")
    sectors, extra = cols * 2 // 32, 2 * (stats == "true")
    assert found["l1.read_sectors"] == ROWS * sectors * (passes + 2)
    assert found["l1.write_sectors"] == found["l2.write_sectors"] == ROWS * (sectors + extra)
    assert found["hbm.read_columns"] == (ROWS + 2) * sectors
    assert found["hbm.write_columns"] == ROWS * sectors + extra * ROWS // 8


@pytest.mark.parametrize("cus", [1, 4])
def test_each_cu_fetches_weight_and_bias_once_where_its_l1_holds_them(cus):
    found = totals(f"layernorm:rows={ROWS},cols=1024", "t3_2024", f"cu.count={cus}")
    assert found["l2.read_sectors"] == (ROWS + 2 * cus) * 64
