"""Fuzzing: every reader of untrusted input takes random bytes, and what must hold of it is checked.

`targets/` has one module per reader, each with a function `check(data)` that raises if the reader breaks a promise.
`corpus/` has inputs of each target that reach different code. `make test` replays them; `make fuzz` makes new ones.
"""
