"""The probe that measures storages: `streamflow-io storage probe`.

`measuring` and the script `writer` act. `evaluation` and `mounts` decide, without effects.
"""
