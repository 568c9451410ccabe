"""Required bandwidth: how fast data has to move so that no job waits for it, and how fast it has moved.

Source: Tarraf et al., "I/O Behind the Scenes: Bandwidth Requirements of HPC Applications with Asynchronous I/O" (IEEE
CLUSTER 2024), and the authors' library TMIO. "The paper" in this package is this one. The unit is a process of an MPI
program there, and a job of a workflow here. Times are in seconds, rates in bytes per second.
"""
