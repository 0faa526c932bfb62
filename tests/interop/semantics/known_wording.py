"""Differences in sentences only, each with the reason why it stays. Codes, reasons, order and bytes never differ.

An entry that is no longer needed fails its test, so this list only says what is true.
"""

from __future__ import annotations

KNOWN_WORDING: dict[str, str] = {}
