"""During the run: the scheduler `io-aware`, the steps and tokens that stream, and the jobs under a node runtime."""
