"""CAPIO as node runtime, and what others wrote in CAPIO-CL: compared with a workflow, or made into hints."""
