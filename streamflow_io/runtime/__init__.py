"""The driver's side of the node runtimes: starting jobs under `sfio-node` and following what happens to them.

Nothing is imported here: who only reads the protocol, as `watch` does, need not wait for StreamFlow.
"""
