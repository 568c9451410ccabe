"""The meaning of a run's records: critical path, savings, requirements, results. Plain data in, plain data out."""
