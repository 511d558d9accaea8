"""Peak rates that follow from the values of a machine. They show whether a preset is the intended machine."""

from dataclasses import dataclass

from traces.units import GIGA, HZ_PER_MHZ, TERA, bytes_text


@dataclass(frozen=True)
class Peaks:
    """Upper bounds of one GPU.

    Attributes:
        tensor_flop_per_s: dense fp16 on the matrix units, two operations per multiply-accumulate.
        fma_flop_per_s: fp32.
        dram_bytes_per_s: all HBM channels; a column takes the data bus for `burst`, and the next comes CCD_S later.
        l2_bytes_per_s: all L2 banks, one direction.
        l2_bytes: capacity.
    """

    tensor_flop_per_s: float
    fma_flop_per_s: float
    dram_bytes_per_s: float
    l2_bytes_per_s: float
    l2_bytes: int

    @classmethod
    def of(cls, machine):
        """Peaks of a sim.spec.Machine."""
        cu, noc, hbm = machine.cu, machine.noc, machine.hbm
        cu_clocks_per_s = cu.count * cu.clock_MHz * HZ_PER_MHZ
        column_clk = max(hbm.timing.burst, hbm.timing.CCD_S)
        fma_per_clk = cu.fma_warps_per_clk * cu.lanes_per_warp * cu.schedulers
        return cls(
            tensor_flop_per_s=2 * cu.tensor_macs_per_clk * cu_clocks_per_s,
            fma_flop_per_s=2 * fma_per_clk * cu_clocks_per_s,
            dram_bytes_per_s=hbm.channels * hbm.column_bytes / column_clk * hbm.clock_MHz * HZ_PER_MHZ,
            l2_bytes_per_s=machine.l2.banks * noc.bank_bytes_per_clk * noc.clock_MHz * HZ_PER_MHZ,
            l2_bytes=machine.l2.bytes,
        )

    def text(self):
        """One line: tensor and fp32 peak, DRAM and L2 bandwidth, L2 capacity."""
        return (
            f"{self.tensor_flop_per_s / TERA:.1f} TFLOP/s fp16 tensor, {self.fma_flop_per_s / TERA:.1f} TFLOP/s fp32, "
            f"{self.dram_bytes_per_s / GIGA:.0f} GB/s DRAM, {self.l2_bytes_per_s / GIGA:.0f} GB/s L2, "
            f"L2 {bytes_text(self.l2_bytes)}"
        )
