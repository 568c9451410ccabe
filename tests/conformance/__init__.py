"""Workflows that others wrote: those of the CWL conformance suite, with a hint on everything."""
