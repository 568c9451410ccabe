"""Real clusters on this machine, for tests and benchmarks: SSH hosts with shaped links, and a Slurm."""
