"""Exit codes, the same for every command; docs/cli.md documents them for users.

A command that answers a question (`why`, `leaks`) exits with `NO` for "no", so that scripts can branch on it.
"""

from __future__ import annotations

NO = 1  # refused, failed, not found, not ready
USAGE = 2  # invalid command line (click's own code)
REPLACES = 3  # `plan --no-replace`: a machine would be replaced
UNREACHABLE = 4  # no management plane answers
IN_VAIN = 5  # --timeout expired before the expected state was reached
INTERRUPTED = 130  # Ctrl-C; the server continues the operation
