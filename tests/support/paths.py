"""Committed inputs that the tests of the verbs use."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL_TRACE = ROOT / "traces" / "small" / "copy_512KiB.h5"
SMALL_TRACE_TEXT = ROOT / "validation" / "references" / "accelsim_traces" / "copy_512KiB_sm70"
BINARIES = ROOT / "tests" / "tracer" / "elf" / "binaries"
