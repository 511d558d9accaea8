"""Options of the whole test suite, and a store of finished runs for each test."""

import itertools
import os
import tempfile

import numba
import pytest

NUMBERS = itertools.count()
STORES = pytest.StashKey[str]()
"""Folder of the tests' stores."""


def pytest_addoption(parser):
    parser.addoption(
        "--boundscheck",
        action="store_true",
        help="compile kernels with index checks: twice as slow, with entries of their own in the compile cache",
    )


def pytest_configure(config):
    """Before anything of the simulator is imported."""
    folder = tempfile.TemporaryDirectory(prefix="t3sim-stores-")
    config.add_cleanup(folder.cleanup)
    config.stash[STORES] = folder.name
    os.environ.setdefault("T3SIM_THREADS", "1")  # tests of threads choose their number
    if config.getoption("--boundscheck"):
        os.environ["NUMBA_BOUNDSCHECK"] = "1"  # for processes that tests start
        numba.config.BOUNDSCHECK = 1


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A test that simulates twice must not find its first result because another test was there."""
    os.environ["T3SIM_STORE"] = f"{item.config.stash[STORES]}/{os.getpid()}-{next(NUMBERS)}"


def pytest_report_header(config):
    data = os.environ.get("T3SIM_DATA")
    return [
        f"T3SIM_DATA: {'set, real traces are tested' if data else 'not set, tests of real traces are skipped'}",
        f"boundscheck: {'on' if config.getoption('--boundscheck') else 'off'}",
    ]
