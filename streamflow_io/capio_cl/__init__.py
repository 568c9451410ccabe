"""The coordination configuration of a workflow, and CAPIO-CL, in which it is written. Pure, but for `loading`."""
