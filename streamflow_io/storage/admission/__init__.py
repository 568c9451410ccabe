"""Admission of jobs by storage bandwidth and I/O executors, and the limits that are learned."""
