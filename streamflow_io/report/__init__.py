"""How the results of runs are shown: figures, pages, tables, and the live view."""
