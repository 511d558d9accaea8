"""The clock of a board that repeats a program: its power, its limit, and what a run reads of both."""

from types import SimpleNamespace

import pytest

from sim.presets import load_preset
from sim.presets.load import PresetError
from sim.run.run import KernelRun
from sim.scenario.iteration import ConfigurationTime
from sim.scenario.power import EXPONENT, STEP_MHZ, loaded_clock, power_W
from sim.scenario.result import SEQUENTIAL
from sim.scenario.scheduled import Figures
from sim.scenario.timeline import Timeline
from sim.verbs.model import _power_text
from tracer.kernels import make_kernel
from tracer.models.schedule import Block, OperatorClass, Step
from tracer.sequence import CommandSequence
from traces.units import PS_PER_S

A100 = load_preset("a100_80g")
MATRIX, NORM = OperatorClass.MATRIX, OperatorClass.NORM


def program(preset, matrix_s=0.7, other_s=0.3, busy=0.95, dram_bytes=0, bubble_s=0.0, count=4):
    """A result with `count` equal GEMMs and a norm."""
    ps = PS_PER_S
    steps = {"gemm": (Block("layer", ()), Step("gemm", MATRIX, "gemm"))}
    steps |= {"norm": (Block("layer", ()), Step("norm", NORM, "norm"))}
    gemm = Figures(round(matrix_s / count * ps), dram_bytes, 0, "tensor", matrix_ps=round(busy * matrix_s / count * ps))
    figures = {"gemm": gemm, "norm": Figures(round(other_s * ps), 0, 0, "dram")}
    scenario = SimpleNamespace(
        preset=preset,
        steps=lambda: iter(steps.values()),
        count=lambda block, step: count if step.name == "gemm" else 1,
        key_of=lambda block, step: step.work,
    )
    class_ps = dict.fromkeys(OperatorClass, 0) | {MATRIX: round(matrix_s * ps), NORM: round(other_s * ps)}
    whole_ps = round((matrix_s + other_s + bubble_s) * ps)
    times = {SEQUENTIAL: ConfigurationTime(whole_ps, class_ps, 0, round(bubble_s * ps), Timeline())}
    return SimpleNamespace(scenario=scenario, figures=figures, configurations=times)


def test_power_is_idle_clock_operations_and_bytes():
    power = A100.machine.power
    assert power_W(power, 0, 0, 0) == power.idle_W
    low = power_W(power, 500, 50e12, 1e12) - power.idle_W
    assert low == pytest.approx(22.5 * 0.5 + 1.71 * 50 + 79.0)
    knee, high = (power_W(power, clock, 50e12, 0) - power.idle_W for clock in (power.knee_MHz, 2 * power.knee_MHz))
    per_clock = (1.71 * 50 + 22.5 * power.knee_MHz / 1000, 1.71 * 50 + 2 * 22.5 * power.knee_MHz / 1000)
    assert high / knee == pytest.approx(2**EXPONENT * per_clock[1] / per_clock[0])


@pytest.mark.parametrize("busy", [0.95, 0.9])
@pytest.mark.parametrize("dram_bytes", [0, 50_000_000_000])
def test_the_clock_is_the_highest_whose_power_is_below_the_limit(busy, dram_bytes):
    preset = load_preset("a100_80g", ["power.limit_W=330"])
    result = program(preset, busy=busy, dram_bytes=dram_bytes)
    found = loaded_clock(result)
    assert found.falls and found.clock_MHz < 1410 and found.power_W <= 330 < found.full_power_W
    macs, power = busy * 0.7 * 108 * 1004 * 1.41e9, preset.machine.power
    for clock_MHz, above in ((found.clock_MHz, False), (found.clock_MHz + STEP_MHZ, True)):
        time_s = 0.3 + 0.7 * 1410 / clock_MHz
        assert (power_W(power, clock_MHz, macs / time_s, 4 * dram_bytes / time_s) > 330) == above
    assert found.time_ps == pytest.approx((0.3 + 0.7 * 1410 / found.clock_MHz) * PS_PER_S)
    assert (1410 - found.clock_MHz) % STEP_MHZ == 0


def test_other_stages_of_a_pipeline_slow_down_alike():
    preset = load_preset("a100_80g", ["power.limit_W=250"])
    plain, waits = (loaded_clock(program(preset, bubble_s=bubble_s)) for bubble_s in (0.0, 1.0))
    assert waits.clock_MHz > plain.clock_MHz  # a waiting board needs less power
    slower = 0.3 + 0.7 * 1410 / waits.clock_MHz
    assert waits.time_ps == pytest.approx((slower + slower) * PS_PER_S)


def test_a_board_below_its_limit_keeps_its_clock_and_its_time():
    found = loaded_clock(program(load_preset("a100_80g", ["power.limit_W=2000"])))
    assert (found.falls, found.clock_MHz, found.time_ps) == (False, 1410, PS_PER_S)
    assert "so the clock does not fall" in _power_text(A100, found)
    assert loaded_clock(program(load_preset("v100"))) is None


def test_the_rate_of_a_preset_can_be_that_of_a_lower_clock():
    """h100_sxm multiplies at 1745 MHz (D46): at 1980 an iteration is shorter than simulated."""
    found = loaded_clock(program(load_preset("h100_sxm", ["power.limit_W=5000"])))
    assert found.clock_MHz == 1980 and found.time_ps == pytest.approx((0.3 + 0.7 * 1805 / 2048) * PS_PER_S)


def test_the_message_names_a_machine_with_that_clock():
    found = loaded_clock(program(load_preset("h100_sxm")))
    assert found.falls
    text = _power_text(load_preset("h100_sxm"), found)
    loaded = load_preset("h100_sxm", found.overrides).machine.cu
    assert (loaded.clock_MHz, loaded.tensor_macs_per_clk) == (found.clock_MHz, 2048)
    assert all(f"--set {value}" in text for value in found.overrides) and f"{found.clock_MHz:,.0f} MHz" in text
    assert set(found.as_dict()) == {"limit_W", "full_power_W", "clock_MHz", "power_W", "time_ns"}


def test_no_run_reads_the_power_of_a_machine():
    source = CommandSequence([make_kernel("gemm:m=64,n=64,k=64")])
    presets = [load_preset("a100_80g", change) for change in ([], ["power.limit_W=90"])]
    assert len({KernelRun(preset=preset, source=source).key for preset in presets}) == 1


@pytest.mark.parametrize("change", ["power.idle_W=400", "power.limit_W=40", "power.knee_MHz=1", "power.mac_pJ=-1"])
def test_impossible_powers_are_refused(change):
    with pytest.raises(PresetError, match=r"power\.(idle_W|knee_MHz|mac_pJ)"):
        load_preset("a100_80g", [change])
