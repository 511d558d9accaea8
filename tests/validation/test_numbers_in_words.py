"""Sentences with numbers say what the committed tables say."""

import re
from collections import Counter
from math import floor

import pytest
from msgspec.structs import replace

import t3sim
from tests.support.paths import ROOT
from validation.claims.claim import load_claims
from validation.csv_file import read_csv
from validation.report.compare import INSIDE, OUTSIDE, SHOWN, Row, verdict
from validation.report.page import summary

TABLES = ROOT / "validation" / "tables"
REPORT = (TABLES / "report" / "report.md").read_text(encoding="utf-8")
CLASSES = ("contraction", "normalisation", "element-wise")


def words(*path):
    """The text of a page on one line, so that a sentence may go over line ends."""
    return re.sub(r"\s+", " ", ROOT.joinpath(*path).read_text(encoding="utf-8"))


def cells(page):
    """Name of a row -> its other cells; of rows of one name the last."""
    lines = (TABLES / page).read_text(encoding="utf-8").splitlines()
    found = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {row[0]: row[1:] for row in found}


def test_the_two_nearest_machines_of_the_searches():
    """How many of the published aggregates they meet."""
    machines = {row["machine"]: row for row in read_csv(TABLES / "search.csv") if row["search"] == "search_best"}
    claims = [claim for claim in load_claims() if claim.experiment in ("paper", "nmc_scatter")]
    met = {}
    for name in ("av", "nb"):
        asked = [(claim, machines[name].get(claim.answer)) for claim in claims]
        met[name] = [verdict(claim, float(found)) == INSIDE for claim, found in asked if found]
    assert {name: (sum(inside), len(inside)) for name, inside in met.items()} == {"av": (12, 16), "nb": (8, 16)}
    assert "12 of 16 claims inside" in words("README.md") and "8 of 16 inside" in words("README.md")
    for page in ("report/search_notes.md", "tables/search.md"):
        assert "av meets 12 of the 16" in words("validation", page)
        assert "It meets 8 of the 16" in words("validation", page)


def test_the_report_counts_predictions_and_calibrations_apart():
    cells = [line.strip("| ").split(" | ") for line in REPORT.splitlines() if line.startswith("| ")]
    ends = Counter((row[-1], row[-2]) for row in cells if row[-1] in ("prediction", "calibration"))
    predicted, calibrated = ([ends[kind, name] for name in (INSIDE, OUTSIDE)] for kind in ("prediction", "calibration"))
    said = "Of these, predictions: {} inside, {} outside; calibrations: {} inside, {} outside."
    assert said.format(*predicted, *calibrated) in REPORT
    said = "predictions with a tolerance {} are inside and {} outside, of its calibrations {} and {}."
    assert said.format(*predicted, *calibrated) in words("docs/trust.md")


def test_a_summary_counts_kinds_apart_where_both_have_verdicts():
    claim = load_claims()[0]
    rows = [
        Row(replace(claim, kind=kind), 1.0, name)
        for kind, name in (("prediction", OUTSIDE), ("calibration", INSIDE), ("calibration", SHOWN))
    ]
    assert summary(rows[1:]) == "2 claims: 1 inside, 1 shown."
    assert summary(rows).endswith(" Of these, predictions: 0 inside, 1 outside; calibrations: 1 inside, 0 outside.")


def test_what_is_said_of_bytes_that_were_not_counted():
    """HBM reads of an MI300X: ours against the derivation of the measured file."""
    measured = read_csv(ROOT / "validation" / "references" / "memory_counters_mi300x.csv")
    derived = [float(row["read_GB_after_LLC_hits(derived)"]) for row in measured][:2]
    (row,) = [line for line in REPORT.splitlines() if "8192^3 in bf16: bytes read from HBM" in line]
    ours = float(row.split(" | ")[2].removesuffix(" GB"))
    high = [round(100 * (ours / value - 1)) for value in derived]
    assert f"derives {derived[0]} GB from the reads alone, and then ours is {high[0]} % too high" in REPORT
    said = "derives {} and {} GB from the reads alone; against these ours is {} and {} % too high"
    assert said.format(*derived, *high) in words("validation/tables/gemm_mi300x.md")
    (claim,) = [claim for claim in load_claims() if claim.id == "mi300x-gemm-hbm-read"]
    assert claim.note in REPORT and "(1 - hits) x (reads + writes)" in claim.read


def test_what_is_said_of_bert():
    """Classes of the encoder layer and what iterations lack, from the table of models; a layer of the study."""
    rows = cells("models.md")
    layer = rows["BERT-Large layer, V100, fp16"]
    classes = [[float(rows[name][at].split()[0]) for at in (1, 0)] for name in CLASSES]
    times = [(share[0] * float(layer[1]) / 100, share[1] * float(layer[0]) / 100) for share in classes]
    text = words("validation/tables/models.md")
    assert "Contractions take {:.2f} ms here and {:.2f} ms measured".format(*times[0]) in text
    assert "normalisation {:.2f} and {:.2f}, element-wise work {:.2f} and {:.2f}".format(*times[1], *times[2]) in text
    assert f"of the {float(layer[0]) - float(layer[1]):.2f} ms that are left" in text
    old = [row for name, row in rows.items() if name.endswith("container 19.07")]
    lacking = [round(float(row[0]) - float(row[1])) for row in old]
    short = [-round(float(row[2].split()[0])) for row in old]
    assert "19.07 is {} and {} % too fast".format(*short[:2]) in text and "19.07 {} and {} %".format(*short[2:]) in text
    assert "LAMB too: {} and {} ms are missing".format(*lacking[:2]) in text
    assert "({} and {} ms are missing)".format(*lacking[2:]) in text
    study = words("validation/tables/bert_training.md")
    assert "[models](models.md): {:.1f}, {:.1f} and {:.1f} %".format(*(share[0] for share in classes)) in study
    assert "has {}, {} and {} %".format(*cells("bert_training.md")["sequence 512"]) in study


def errors(page, at, pattern, unless="a row with none of it"):
    """Errors in whole percent, halves up, of the rows that match."""
    lines = (TABLES / page).read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if re.search(pattern, line) and not re.search(unless, line)]
    found = [float(row[at].removesuffix(" %")) for row in rows if row[0] not in ("case", "data set")]
    assert found
    return [floor(abs(value) + 0.5) for value in found]


def test_what_is_said_of_the_worst_operators():
    text = words("validation/tables/operator_time.md")
    embedding, added, adam, liger, prompts, loss = (
        sorted(errors("operator_time.md", 4, rf"^\| {case}"))
        for case in ("vllm/emb", "vllm/add/.*(empty).*prediction", "apex/adam/262144", "liger/(layer|rms)norm/.*predic",
                     "vllm/attention/8x256x24x8", "torch/cross_entropy")
    )  # fmt: skip
    assert "embedding** ({} and {} % too fast)".format(*embedding) in text
    assert f"Residuals in vLLM's profile** ({added[0]} to {added[-1]} % too fast)" in text
    assert f"below a million parameters** ({adam[0]} % too fast)" in text
    assert f"of Liger** ({liger[0]} to {liger[-1]} % too slow)" in text
    assert f"24 heads: {prompts[0]} % too fast" in text
    assert "these rows are {} and {} % too fast".format(*loss) in text


def test_what_is_said_of_the_worst_gemms_of_the_a100():
    text, a100 = words("validation/tables/gemm_library.md"), r"^\| a100-vidur \| "
    slow = errors("gemm_library.md", 6, a100 + r"(2048 x 4096 x 1376|1024 x 5120 x 3456) ")
    tiles = errors("gemm_library.md", 6, a100 + ".* 256 x 128 x 64", "K in")
    split = errors("gemm_library.md", 6, a100 + r"(64|128|256) x .* K in")
    weights = errors("gemm_library.md", 6, a100 + r"(1|16) x .* prediction")
    assert "K of 1376 and 3456** ({} and {} % too slow)".format(*reversed(slow)) in text
    assert f"256 x 128 tiles, K in one part** ({min(tiles)} to {max(tiles)} % off, all but one too fast)" in text
    assert f"M = 64 to 256 with K in several parts** ({min(split)} to {max(split)} % too fast)" in text
    assert f"(M = 1 and 16, {min(weights)} to {max(weights)} % too fast)" in text


def test_what_is_said_of_streams():
    lines = (TABLES / "microbenchmarks.md").read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if len(row := line.strip("| ").split(" | ")) == 9 and row[1].startswith("HBM ")]
    rate = {(row[0], row[1]): round(float(row[3].replace(",", ""))) for row in rows}
    v100 = [rate["v100", f"HBM {flow}"] for flow in ("read", "write", "copy")]
    read, copy = rate["a100_80g", "HBM read"], rate["a100_80g", "HBM copy"]
    text = words("validation/tables/microbenchmarks.md")
    assert "now it reaches {}, {} and {}.".format(*v100) in text and f"now {copy:,} with two" in text
    assert f"a100_80g copies at {copy:,} instead of 1,759" in words("validation/tables/operator_time.md")
    assert f"Our DRAM delivers {read:,} GB/s in a stream" in words("validation/tables/gemm_library.md")


def test_what_the_deviations_say_of_a_constant_clock():
    """D46: a rate that is too low by 9 % is a time that is too long by 10 %."""
    row = next(line.split(" | ") for line in (TABLES / "gemm_mi300x.md").read_text().splitlines() if "| 288 |" in line)
    measured, ours = float(row[3]), float(row[4])
    said = f"a rate {1 - ours / measured:.0%} below the measured one, so it takes {measured / ours - 1:.0%} longer"
    assert said.replace("%", " %") in words("validation/DEVIATIONS.md")


@pytest.mark.slow
def test_what_the_deviations_say_of_banks_without_a_hash():
    """D18: Apex's Adam on v100."""
    adam = "adam:parameters=4194304,warps=16,unroll=1,turns=32"
    times = [
        t3sim.run(adam, "v100", {"hbm.bank_hash": choice}, accuracy="1%").headline()["time_ns"] / 1000
        for choice in ("none", "xor")
    ]
    assert times[0] / times[1] > 1.7


def test_what_is_said_of_the_two_depths_of_the_4096_gemm():
    lines = (TABLES / "gemm_counters.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| cudaTensorCoreGemm")]
    counted, drift = rows[:2], rows[2:]
    assert [row[10] for row in counted] == ["exact", "exact"] and [row[1] for row in drift] == ["1", "2"]
    apart = [f"{float(row[3]):.1f}" for row in drift]
    text = words("validation/tables/gemm_counters.md")
    assert "It has the measured number, too" in text
    assert "are {} (depth 1) and {} K-steps (depth 2) apart".format(*apart) in text


def test_what_is_said_of_kraken():
    """Slower than GEMM and NCCL apart, but for one row."""
    lines = (TABLES / "fused_h100.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| kraken | GEMM+RS")]
    apart = {row[2]: [float(row[at].strip("| ").split(" | ")[-1]) for at in (-4, -7)] for row in rows}
    assert [m for m, (fused, alone) in apart.items() if fused < alone] == ["2048"]
    said = "but for kraken at M = 2048 ({:.0f} us fused, {:.0f} apart)"
    assert said.format(*apart["2048"]) in words("validation/tables/fused_h100.md")
    assert "kraken below M = 2048, lose to NCCL" in words("docs/trust.md")


def test_what_is_said_of_dram_reads_of_blind_kernels():
    lines = (TABLES / "measured_gpus.md").read_text(encoding="utf-8").splitlines()
    of_all = [line.strip("| ").split(" | ")[-2:] for line in lines if re.match(r"\| (GEMMs|Operators), blind \|", line)]
    blind, today = ([float(row[at].split()[0]) for row in of_all] for at in (0, 1))
    assert max(blind) < 3 and max(today) < 1
    worst = [floor(value + 0.5) for value in shorter(lines, "gemm:m=2048,n=8192,k=1024")]
    text = words("validation/tables/measured_gpus.md")
    assert "reads {} % (H200) and {} % (H100) too little".format(*worst) in text
    assert f"1 to 3 % in the mean (one GEMM {max(worst)} %)" in words("docs/trust.md")


def shorter(lines, kernel):
    """Percents by which the rows of a kernel read too little."""
    return [-float(line.strip("| ").split(" | ")[-1].split()[0]) for line in lines if line.startswith(f"| {kernel}")]


def test_what_fused_over_apart_is():
    """A speed-up: above 1 where the fused time is shorter."""
    measured = read_csv(ROOT / "validation/references/gemm_with_collective_a100.csv")
    rows = [row for row in measured if row["flux_fused_us"]]
    row = max(rows, key=lambda row: float(row["speedup_fused_over_separate"]))
    assert float(row["flux_fused_us"]) < float(row["cublas_gemm_us"]) + float(row["nccl_collective_us"])
    assert "**Speed-ups** are the time apart over the fused time" in words("validation/tables/overlap.md")


def of_the_paper(section):
    """Case -> GEMM, RS and AG in us and the speed-up of the ideal, of one section of the report."""
    lines = REPORT.split(f"\n## {section}")[1].split("\n## ")[0].splitlines()
    rows = [line.replace(",", "").strip("| ").split(" | ") for line in lines if "/tp" in line and line.startswith("| ")]
    return {row[0]: [float(row[at]) for at in (1, 2, 3, 6)] for row in rows}


def test_what_the_report_says_of_the_final_reduction():
    """Its time beyond that of 3 D / N bytes at the peak, as a share of Sequential."""
    shares, peak = {}, 1024e3  # bytes per us
    for case, (gemm, scatter, gather, _) in of_the_paper("The paper's evaluation").items():
        model, _, tp = case.split("/")
        output = {"mega-gpt-2": 16384 * 3072 * 2, "t-nlg": 8192 * 4256 * 2}[model]
        beyond = scatter - gather - 3 * output / int(tp[2:]) / peak
        shares[case] = f"{100 * beyond / (gemm + scatter + gather):.1f}"
    at_8 = [[shares[f"{model}/{layer}/tp8"] for layer in ("fc2", "op")] for model in ("t-nlg", "mega-gpt-2")]
    said = "{} % (FC) to {} % (OP) of Sequential's time there (Mega-GPT-2 at TP 8: {} to {} %)"
    for page in ("validation/report/evaluation_notes.md", "validation/tables/report/report.md"):
        assert said.format(*at_8[0], *at_8[1]) in words(page)


def test_what_the_report_says_of_the_bound_of_the_ideal():
    """More than 1.5 only where the reduce-scatter takes longer than the all-gather."""
    found = of_the_paper("The paper's cases with DRAM queues of 16 entries")
    above = [case for case, (_, scatter, gather, ideal) in found.items() if ideal > 1.5 and scatter > gather]
    assert above and "a slower RS allows more" in REPORT


def test_what_is_said_of_profiles():
    """Of an H100, today: the median of element-wise kernels, and the errors of the longest kernels of two kinds."""
    lines = (TABLES / "profiles.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| h100_sxm |")]
    (median,) = (row[11] for row in rows if row[1] == "norm and element-wise")
    whole = round(float(median.split()[0]))
    assert f"of 10 us and more are {whole} % off in the median" in words("README.md")
    trust = words("docs/trust.md")
    assert f"of 10 us and more {whole} % off in the median on an H100" in trust
    said = {"softmax:": "softmax of long rows {} to {} % too fast", "gemm:": "GEMMs with odd rows {} to {} %"}
    for kind, sentence in said.items():
        longest = [row for row in rows if row[1].startswith(kind) and (kind != "gemm:" or "family=sm75" in row[1])]
        errors = sorted(round(abs(float(row[-1].split()[0]))) for row in longest)
        assert sentence.format(errors[0], errors[-1]) in trust
