from hypothesis import settings

# The first call of a kernel compiles it, which no deadline foresees.
settings.register_profile("mcfair", deadline=None)
settings.load_profile("mcfair")
