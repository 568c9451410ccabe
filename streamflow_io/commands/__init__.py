"""The subcommands of `streamflow-io`: one module for each."""
