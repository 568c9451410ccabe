"""Named workloads that compare StreamFlow-IO with plain StreamFlow and with what a shell can do."""
