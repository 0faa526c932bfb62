"""The three patch kinds that need no field ownership: JSON patch, merge patch, strategic merge patch.

Each function takes a decoded object and a decoded patch and returns the patched object. Neither input is changed and
the result shares no mutable part with them, so that it may be defaulted and pruned in place. A caller that decoded
`original` only for this passes `in_place=True`: the object itself becomes the result (on an error it is lost), which
saves one copy of it. Refusals are `StatusError`s with the code and wording of the real server.
"""

from remuda.kube.patches.json_copy import copy_json
from remuda.kube.patches.json_patch import MAX_OPERATIONS, apply_json_patch, create_json_patch
from remuda.kube.patches.merge_patch import apply_merge_patch, create_merge_patch
from remuda.kube.patches.strategic import apply_strategic_patch

__all__ = [
    "MAX_OPERATIONS",
    "apply_json_patch",
    "apply_merge_patch",
    "apply_strategic_patch",
    "copy_json",
    "create_json_patch",
    "create_merge_patch",
]
