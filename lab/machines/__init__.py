"""Real clusters and engines of containers, for tests and benchmarks: a Slurm, SSH hosts, dockerd; on this machine."""
