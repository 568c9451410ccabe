"""What a storage can do: `streamflow-io storage probe`.

`measuring` and the script `writer` act; `evaluation` and `mounts` decide, and are pure.
"""
