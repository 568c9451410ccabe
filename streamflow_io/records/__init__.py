"""The facts of a run: what happened, job by job, in the files that each run keeps."""
