"""Nothing a driver does may hold up the event loop: many Jobs can share one."""

from tests.unit.runtime.conftest import loop_guard

__all__ = ["loop_guard"]
