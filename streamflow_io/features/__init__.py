"""Features beside the core, each a package. See :mod:`streamflow_io.installed_features`."""
