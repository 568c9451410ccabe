"""What was measured: the records of a run, its telemetry file, the report."""
