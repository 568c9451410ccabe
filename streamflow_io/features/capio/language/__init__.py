"""CAPIO-CL that others wrote: read, compared with a workflow, and made into hints."""
