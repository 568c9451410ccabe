"""Who may use how much of a storage: admission, learned limits, the share of each run, and a measure of storages."""
