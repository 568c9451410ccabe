"""Splits that write nothing, and files that are read ahead of the jobs that read their parts."""
