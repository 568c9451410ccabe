"""What the records of a run mean: critical path, savings, requirements, results. Plain data in, plain data out."""
