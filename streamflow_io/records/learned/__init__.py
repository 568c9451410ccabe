"""What earlier runs have learned: one table, and what a run remembers of it."""
