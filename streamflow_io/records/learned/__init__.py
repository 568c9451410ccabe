"""Learned facts: one table of facts from earlier runs, and the entries that a run remembers."""
