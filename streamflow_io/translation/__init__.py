"""Before the run: from the translated workflow to the I/O graph, and its rewiring as the stream edges say."""
