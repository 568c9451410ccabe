"""The part that StreamFlow calls: the plan of a workflow before its run, the rewiring, the scheduler, and the run."""
