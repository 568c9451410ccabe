"""The laboratory of tests and benchmarks: workflows, runs, node runtimes, machines, disks and fakes."""
