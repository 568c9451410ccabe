"""The coordination configuration of a workflow, and CAPIO-CL, in which the configuration is written."""
