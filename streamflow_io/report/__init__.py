"""Views of the results of runs: figures, pages, tables, and the live view."""
