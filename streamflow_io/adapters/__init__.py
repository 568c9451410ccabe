"""StreamFlow as the plugin extends it: steps, tokens, ports, connectors, and the state of each job."""
