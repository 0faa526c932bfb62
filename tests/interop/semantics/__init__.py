"""The API semantics suite: each case is asked of the real server and of ours, and the answers must be the same."""
