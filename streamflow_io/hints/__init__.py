"""The hints that a user writes: models, parsing, inheritance, checks.

All mistakes of a document are raised together, as :class:`~streamflow_io.hints.errors.HintErrors`.
"""
