"""Random workflows, each run by plain StreamFlow and by ours: a difference that nobody thought of is found here."""
