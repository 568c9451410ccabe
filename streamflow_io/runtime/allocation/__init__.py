"""The deployment type `sfio.allocation`: a location for each node of an allocation of a queue manager."""
