"""The kernel of a GEMM from its name: tile, warps, depth and cluster, by rows."""

import pytest

from tests.support.profiles import kernel, operator, write_profile
from tracer.kernels import make_kernel
from tracer.profile.gemms import kernel_fields
from tracer.profile.kineto import read_profile

CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>(Params)"
TURING = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(Params)"
WMMA = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(Params)"
ONE_STAGE = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_64x1_nn_align8>(Params)"
AMPERE = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"
XMMA = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
NVJET = "nvjet_tst_192x8_64x8_4x1_v_bz_TNT"
WAVES = (
    "Cijk_Ailk_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT64x288x64_MI16x16x1_SN_LDSB1_AFC1_MIAV0_MIWT{}_9_MO40_NTn1_WS64"
)
TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x224x64_MI16x16x1_SN_LDSB1"


def _fields(tmp_path, name, threads):
    facts = {"block": [threads, 1, 1]} if threads else {}
    events = [operator(1, "aten::mm", [[64, 32], [32, 16]]), kernel(1, 0.0, 1.0, name, **facts)]
    return kernel_fields(read_profile(write_profile(tmp_path / "p.json", events)).calls[0])


@pytest.mark.parametrize(
    ("name", "threads", "fields"),
    [
        (CUTLASS, 128, ",family=sm80,tile=64x128x64,warps=1x4,pipeline_depth=6"),
        (CUTLASS, 256, ",family=sm80,tile=64x128x64,warps=2x4,pipeline_depth=6"),
        (TURING, 256, ",family=sm75,tile=128x256x32,warps=2x4,align=1,pipeline_depth=2"),
        (WMMA, 128, ",family=sm80,tile=32x32x128,warps=2x2,pipeline_depth=2"),
        (AMPERE, 128, ",family=sm80,tile=64x128x64,warps=1x4,pipeline_depth=4"),
        (NVJET, 384, ",family=sm90,tile=8x192x64,warps=1x8,cluster=1x4,pipeline_depth=8"),
        (TENSILE, 256, ",family=cdna3,tile=224x256x64,warps=2x2,pipeline_depth=3"),
        (WAVES.format(2), 256, ",family=cdna3,tile=288x64x64,warps=2x2,pipeline_depth=3"),
        (WAVES.format(1), 512, ",family=cdna3,tile=288x64x64,warps=2x4,pipeline_depth=3"),
        # As square as they can be: the wavefronts of the name are not those of the workgroup, or cut no tile.
        (WAVES.format(2), 512, ",family=cdna3,tile=288x64x64,warps=8x1,pipeline_depth=3"),
        (WAVES.format(3), 256, ",family=cdna3,tile=288x64x64,warps=4x1,pipeline_depth=3"),
        (WAVES.format(0), 256, ",family=cdna3,tile=288x64x64,warps=4x1,pipeline_depth=3"),
    ],
)
def test_a_name_says_tile_and_stages(tmp_path, name, threads, fields):
    assert _fields(tmp_path, name, threads) == fields
    lanes = 64 if "cdna" in fields else 32
    assert make_kernel(f"gemm:m=1024,n=1536,k=512,dtype=bf16,lanes={lanes}{fields}")


@pytest.mark.parametrize(
    ("name", "gpu", "family", "fields"),
    [
        (
            "nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT",
            "NVIDIA B200",
            "sm100",
            "16x64x64,warps=1x4,cluster=4x2,pair=1x2",
        ),
        (
            "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT",
            "NVIDIA GB300",
            "sm103",
            "64x64x64,warps=1x4,cluster=1x2,pair=1x2",
        ),
        ("nvjet_tst_128x64_64x8_1x2_2cta_v_bz_TNT", "NVIDIA B200", "sm100", "64x128x64,warps=1x4,cluster=2x1,pair=2x1"),
        ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", "NVIDIA B200", "sm100", "8x192x64,warps=1x4,cluster=1x4"),
        ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", "NVIDIA H100 80GB HBM3", "sm90", "8x192x64,warps=1x4,cluster=1x4"),
        ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", "", "sm90", "8x192x64,warps=1x4,cluster=1x4"),
    ],
)
def test_kernels_of_blackwell_have_its_family_and_pairs(tmp_path, name, gpu, family, fields):
    """256 threads: four warps multiply, the others copy. The pair lies where the cluster has an even number."""
    events = [operator(1, "aten::mm", [[64, 32], [32, 16]]), kernel(1, 0.0, 1.0, name, block=[256, 1, 1])]
    call = read_profile(write_profile(tmp_path / "p.json", events)).calls[0]
    found = kernel_fields(call, gpu)
    assert found == f",family={family},tile={fields},pipeline_depth=8"
    assert make_kernel(f"gemm:m=1024,n=1536,k=512,dtype=bf16{found}")


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        ("gemv2T_kernel_val<int, int, bf16>", 128),
        (ONE_STAGE, 128),  # no stages to overlap
        (CUTLASS, 0),  # the size of the workgroup is not recorded
        (CUTLASS, 7 * 32),  # seven warps cut no tile
        (XMMA, 384),  # its cluster is not in the name
        (TENSILE.replace("MT256x224x64", "MT0x0x0"), 256),
    ],
)
def test_what_a_name_does_not_say_the_library_chooses(tmp_path, name, threads):
    assert _fields(tmp_path, name, threads) == ""
