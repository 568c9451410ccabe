from hypothesis import settings

# How long an example takes says more of the machine, which is shared, than of what is tested.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
