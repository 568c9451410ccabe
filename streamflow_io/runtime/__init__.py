"""The driver's side of the node runtimes: starting jobs under `sfio-node` and following what happens to them.

This file imports nothing: a program that only reads the protocol, as `watch`, does not load StreamFlow.
"""
