"""The adapter between the I/O graph and StreamFlow: rewiring of the workflow, its steps, tokens and commands."""
