"""From the spec to a machine that runs: records wired with fifos, the engine, time series, reports."""
