"""`python -m t3sim` is the command `t3sim`.

Python imports the package first, and with it the machine. A policy must be known before that (`sim.hw.policy`), so a
command with a policy starts again in a Python that has not imported it.
"""

import os
import sys

from t3sim_packages import main

COMMAND = "from t3sim_packages import main; raise SystemExit(main())"

if any(word.partition("=")[0] == "--policy" for word in sys.argv[1:]):
    os.execv(sys.executable, [sys.executable, "-c", COMMAND, *sys.argv[1:]])
raise SystemExit(main())
