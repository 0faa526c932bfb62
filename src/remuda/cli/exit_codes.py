"""Exit codes, the same for every command; docs/cli.md tells them to people.

A command that answers a question (`why`, `leaks`, `plan --no-replace`) says no with `NO`, so that scripts can ask.
"""

from __future__ import annotations

NO = 1  # refused, failed, not found, not ready
USAGE = 2  # click's own: the command line cannot be understood
REPLACES = 3  # `plan --no-replace`: a machine would be replaced
UNREACHABLE = 4  # no management plane answers
IN_VAIN = 5  # --timeout is over, and what was waited for has not happened
INTERRUPTED = 130  # Ctrl-C; what was asked of the server goes on there
