"""Intermediate files: which of them no job needs any more, and their removal."""
