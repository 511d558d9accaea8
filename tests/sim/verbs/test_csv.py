"""`--format csv`: a column that has numbers for people has plain numbers, and the unit in its name."""

import csv
import json
from pathlib import Path

import pytest

from traces.command.cli import main

RUN = ["run", "--gemm", "256x256x64", "--preset", "v100", "--interval-ns", "500"]
MODEL = {"model_type": "llama", "hidden_act": "silu", "vocab_size": 1024, "max_position_embeddings": 512} | {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 1,
}  # fmt: skip
MODEL_COMMAND = "model config.json --tp 2 --tokens 128 --configuration T3"
NUMBERS = {
    "show one.h5": {"share"},
    "diff one.h5 other.h5": {"change"},
    "explain one.h5 --checks 1 --assumed 1": {"share of peak", "saves", "share"},
    "t3 --kernel gemm:m=256,n=256,k=64 --gpus 2": {"all", "speed-up", "us", "matrix", "t3", "t3_mca"},
    MODEL_COMMAND: {"share", "time, ns", "DRAM, bytes", "speed-up"},
}


@pytest.mark.parametrize(
    "command", [pytest.param(each, marks=pytest.mark.slow if each == MODEL_COMMAND else ()) for each in NUMBERS]
)
def test_numbers_are_plain(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(MODEL))
    assert main([*RUN, "-o", "one.h5"]) == 0
    assert main([*RUN, "--set", "noc.latency_clk=20", "-o", "other.h5"]) == 0
    capsys.readouterr()
    assert main([*command.split(), "--format", "csv"]) == command.startswith("diff")
    found = set()
    for table in capsys.readouterr().out.split("\n\n"):
        names, *rows = list(csv.reader(table.splitlines()[1:])) or [[]]
        for name in NUMBERS[command].intersection(names):
            cells = [row[names.index(name)] for row in rows]
            assert [float(cell) for cell in cells if cell], (name, cells)
            found.add(name)
    assert found == NUMBERS[command]


@pytest.mark.parametrize(
    ("command", "columns", "row"),
    [
        ("presets", ["preset", "title", "tensor_flop_per_s"], ["v100", "NVIDIA V100 SXM2 16 GB at 1380 MHz"]),
        ("kernel --list", ["kernel", "field", "allowed", "default", "needed"],
         ["gemm", "a_layout", "row|column", "row", "False"]),
        ("model --list", ["name", "billion parameters", "layers", "hidden"], ["llama-3-70b"]),
    ],
)  # fmt: skip
def test_a_list_is_a_table(command, columns, row, capsys):
    assert main([*command.split(), "--format", "csv"]) == 0
    _, names, *rows = csv.reader(capsys.readouterr().out.splitlines())
    assert names[: len(columns)] == columns
    assert [one[: len(row)] for one in rows].count(row) == 1
