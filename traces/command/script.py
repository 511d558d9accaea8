"""The command line of scripts (`python -m`) that have no options."""

import argparse


def without_options(about: str | None) -> None:
    """End the script with its description if it is called with `--help`, and with an error for any other argument."""
    argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    ).parse_args()
