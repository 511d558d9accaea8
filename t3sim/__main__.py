"""`python -m t3sim` is the command `t3sim`."""

from t3sim_packages import main

raise SystemExit(main())
