"""Random workflows, each run by plain StreamFlow and by ours, to find differences that no test expects."""
