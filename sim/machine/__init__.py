"""A machine that runs, built from the spec: records wired with fifos, the engine, time series, reports."""
