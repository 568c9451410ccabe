"""CAPIO's server and library, and the jobs that use them."""
