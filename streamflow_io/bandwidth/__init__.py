"""Required bandwidth: how fast data has to move so that nobody waits for it, and how fast it did.

After Tarraf et al., "I/O Behind the Scenes: Bandwidth Requirements of HPC Applications with Asynchronous I/O" (IEEE
CLUSTER 2024), "the paper" in this package, and their library TMIO: there the unit is a process of an MPI program, here
a job of a workflow. Times are seconds, rates bytes per second.
"""
