"""Real runs that something is killed in, at a random moment: `python -m tests.campaign --count 200`."""
