"""The clock that a board keeps while it repeats a program: its mean power stays below its limit.

Power = idle + clock of the CUs + operations of the matrix units + bytes of DRAM. Energy of a clock and of an operation
grows with the square of the voltage: constant up to the knee, then with the clock to the power of EXPONENT. Both
terms and the exponent are fitted to boards that repeat a GEMM (`validation/tables/power.md`).

The time of an iteration at another clock is estimated: matrix work takes the clock's share, all else keeps its time. A
simulation at that clock is another machine (`LoadedClock.overrides`).

Left out: what the numbers in the matrices do (up to a third of the power of a GEMM), other units, temperature, boards
that differ, and how fast the limiter is: milliseconds, so that an iteration has one clock (assumed).
"""

from dataclasses import dataclass

from sim.scenario.iteration import ConfigurationTime
from sim.scenario.result import SEQUENTIAL
from sim.scenario.scheduled import ScheduleResult
from sim.spec import Power
from tracer.models.schedule import OperatorClass
from traces.units import HZ_PER_MHZ, PS_PER_NS, PS_PER_S

EXPONENT = 1.5
"""Of the clock above the knee in the energy of an operation. `validation/references/clocks.csv`: A100, GEMMs of 8192^3
and 4096^3 at locked clocks; H100, a GEMM of 4096^3 under five limits."""
STEP_MHZ = 15.0
"""Distance of two clocks of an A100, H100 or H200."""
SCALED = (OperatorClass.MATRIX, OperatorClass.ATTENTION)
"""Classes whose time follows the clock."""
PJ = 1e-12


@dataclass(frozen=True)
class LoadedClock:
    """The clock of a machine that repeats a program.

    Attributes:
        clock_MHz: the highest at which the power is below the limit, at most the machine's own.
        power_W, full_power_W: at this clock, and at the machine's own.
        power: of the machine.
        time_ps: estimate of the iteration at this clock.
    """

    clock_MHz: float
    power_W: float
    full_power_W: float
    power: Power
    time_ps: int

    @property
    def falls(self) -> bool:
        """Is the clock below the machine's own?"""
        return self.full_power_W > self.power.limit_W

    @property
    def overrides(self) -> tuple[str, ...]:
        """Of a machine with this clock, for `--set`."""
        return f"cu.clock_MHz={self.clock_MHz:g}", f"cu.tensor_macs_per_clk={self.power.tensor_macs_per_clk:g}"

    def as_dict(self) -> dict[str, float]:
        """Plain values for JSON."""
        return {
            "limit_W": self.power.limit_W,
            "full_power_W": round(self.full_power_W, 1),
            "clock_MHz": self.clock_MHz,
            "power_W": round(self.power_W, 1),
            "time_ns": self.time_ps / PS_PER_NS,
        }


def power_W(power: Power, clock_MHz: float, macs_per_s: float, dram_bytes_per_s: float) -> float:
    """Mean power of a board. macs_per_s: of 16-bit numbers, or as many as take their time."""
    voltage = max(1.0, clock_MHz / power.knee_MHz) ** EXPONENT
    on_chip_W = power.clock_W_per_GHz * clock_MHz / 1000 + power.mac_pJ * PJ * macs_per_s
    return power.idle_W + voltage * on_chip_W + power.dram_pJ_per_byte * PJ * dram_bytes_per_s


def loaded_clock(result: ScheduleResult) -> LoadedClock | None:
    """The clock that the iterations of a program reach in Sequential; None: the power of the machine is not known."""
    power = result.scenario.preset.machine.power
    return _with_power(result, power) if power.limit_W else None


def _with_power(result: ScheduleResult, power: Power) -> LoadedClock:
    base, cu = result.configurations[SEQUENTIAL], result.scenario.preset.machine.cu
    macs, moved = _work(result)
    now_MHz = cu.clock_MHz * cu.tensor_macs_per_clk / power.tensor_macs_per_clk  # less than the machine's on some (D46)

    def at(clock_MHz: float) -> tuple[float, float]:
        """Power and time at a clock."""
        time_s = _time_ps(base, now_MHz / clock_MHz) / PS_PER_S
        return power_W(power, clock_MHz, macs / time_s, moved / time_s), time_s

    clock_MHz = cu.clock_MHz
    while at(clock_MHz)[0] > power.limit_W and clock_MHz > 2 * STEP_MHZ:
        clock_MHz -= STEP_MHZ
    found_W, time_s = at(clock_MHz)
    return LoadedClock(clock_MHz, found_W, at(cu.clock_MHz)[0], power, round(time_s * PS_PER_S))


def _time_ps(base: ConfigurationTime, slower: float) -> float:
    """Time of an iteration whose matrix work takes `slower` times as long."""
    scaled_ps = sum(base.class_ps[name] for name in SCALED)
    others_ps = base.time_ps - base.bubble_ps - scaled_ps
    busy_ps = others_ps + scaled_ps * slower
    return busy_ps + base.bubble_ps * busy_ps / (others_ps + scaled_ps)


def _work(result: ScheduleResult) -> tuple[float, float]:
    """Multiply-accumulates of an iteration on one GPU, as many of 16 bits as take their time, and bytes of DRAM."""
    scenario, cu = result.scenario, result.scenario.preset.machine.cu
    steps = [
        (scenario.count(block, step), result.figures[scenario.key_of(block, step)]) for block, step in scenario.steps()
    ]
    busy_s = sum(count * figures.matrix_ps for count, figures in steps) / PS_PER_S
    macs_per_s = cu.count * cu.tensor_macs_per_clk * cu.clock_MHz * HZ_PER_MHZ
    return busy_s * macs_per_s, sum(count * figures.dram_bytes for count, figures in steps)
