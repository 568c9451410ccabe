"""The I/O graph: steps, the ways of their files, stream edges, gangs and sites. Plain data in, plain data out."""
