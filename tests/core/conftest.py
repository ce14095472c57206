from hypothesis import HealthCheck, settings

# The machine may be busy: how long an example takes says nothing.
settings.register_profile(
    "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")
