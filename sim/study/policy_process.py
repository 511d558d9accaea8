"""A process for one point with a user's arbiter: `python -m sim.study.policy_process TARGET`, the point on stdin.

The arbiter is named by T3SIM_POLICY and bound when the machine is imported. Prints the reason where the point failed.
"""

import importlib
import json
import sys

from traces.errors import UserError


def main(target: str) -> int:
    try:
        point = importlib.import_module("sim.study.point")  # imports the machine, and so the policy
        sys.stdout.write(point.run_point(point.Point(**json.load(sys.stdin)), target))
    except UserError as mistake:
        print(" ".join(str(mistake).split()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
