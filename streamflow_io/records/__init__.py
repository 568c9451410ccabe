"""The facts of a run: its records, job by job, in the files that each run keeps."""
