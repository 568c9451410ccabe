"""A stand-in for CAPIO: a server and a library that speak the same start-up, environment and clean-up duties."""
