"""Bandwidth of storages: admission of jobs, learned limits, sharing between runs, and measurement of storages."""
