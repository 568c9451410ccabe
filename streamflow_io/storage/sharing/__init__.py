"""Sharing of a storage between runs: files that all runs read say which run holds how much bandwidth.

`allocation` decides, without effects. `directory` has the files and locks, `client` is a run's side.
"""
