"""Runs that use one storage share its bandwidth: who holds how much of it, in files that all of them read.

`table` and `due` decide, and are pure; `directory` has the files and locks, `client` is a run's side of it.
"""
