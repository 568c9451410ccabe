"""The scheduler of type `io-aware`."""
