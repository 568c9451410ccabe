"""The I/O graph: steps, the ways of their files, stream edges, gangs and sites. Pure: plain data in, plain data out."""
