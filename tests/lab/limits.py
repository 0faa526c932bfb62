"""Time limits of tests.

A limit ends a wait for something that will never happen; it must never end one for something slow. Suites share the
machine with other programs, so a test that needs 1 s on an idle machine may need 100 s.
"""

from __future__ import annotations

LIMIT_SECONDS = 300.0  # upper limit of one wait
