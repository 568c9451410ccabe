"""StreamFlow-IO: I/O-aware CWL workflows for StreamFlow."""
