"""Settings every test shares: on a busy machine a slow example is no finding."""

from hypothesis import HealthCheck, settings

from tests.lab.repeatable import repeatable

__all__ = ["repeatable"]

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
