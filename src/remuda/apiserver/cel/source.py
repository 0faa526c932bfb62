"""Source text of an expression and its error messages in CEL's layout: line, column, a row of dots."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.apiserver import ApiServerError

MAX_COMPLAINTS = 100


class CelSyntaxError(ApiServerError):
    """Syntax or type error in an expression. `str()` is the message for the user."""


@dataclass(frozen=True, slots=True)
class Complaint:
    at: int  # offset in code points
    text: str


def render(source: str, complaints: list[Complaint]) -> str:
    ordered = sorted(complaints, key=lambda complaint: complaint.at)
    shown = [_drawn(source, complaint) for complaint in ordered[:MAX_COMPLAINTS]]
    if len(ordered) > MAX_COMPLAINTS:
        shown.append(f"{len(ordered) - MAX_COMPLAINTS} more errors were truncated")
    return "\n".join(shown)


def _drawn(source: str, complaint: Complaint) -> str:
    start = source.rfind("\n", 0, complaint.at) + 1
    end = source.find("\n", start)
    line = source[start:] if end < 0 else source[start:end]
    number = source.count("\n", 0, start) + 1
    column = complaint.at - start
    before = line[:column] + "." * (column - len(line))
    dots = "".join("." if ord(char) < 128 else "．" for char in before)
    marked = line[column : column + 1]
    arrow = "＾" if marked and ord(marked) >= 128 else "^"
    shown = line.replace("\t", " ")
    return f"ERROR: <input>:{number}:{column + 1}: {complaint.text}\n | {shown}\n | {dots}{arrow}"
