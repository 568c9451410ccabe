"""The probe that measures storages: `streamflow-io storage probe`.

`measuring` acts. `evaluation` and `mounts` decide, without effects.
"""
