"""Options of the whole test suite, and a store of finished runs of its own."""

import os
import tempfile

import numba


def pytest_addoption(parser):
    parser.addoption(
        "--boundscheck",
        action="store_true",
        help="compile kernels with index checks: twice as slow, with entries of their own in the compile cache",
    )


def pytest_configure(config):
    """Before anything of the simulator is imported."""
    if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share the store of the process that started them
        folder = tempfile.TemporaryDirectory(prefix="t3sim-store-")
        config.add_cleanup(folder.cleanup)
        os.environ["T3SIM_STORE"] = folder.name
    if config.getoption("--boundscheck"):
        os.environ["NUMBA_BOUNDSCHECK"] = "1"  # for processes that tests start
        numba.config.BOUNDSCHECK = 1


def pytest_report_header(config):
    data = os.environ.get("T3SIM_DATA")
    return [
        f"T3SIM_DATA: {'set, real traces are tested' if data else 'not set, tests of real traces are skipped'}",
        f"boundscheck: {'on' if config.getoption('--boundscheck') else 'off'}",
    ]
