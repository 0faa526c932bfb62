"""The lab: the real kube-apiserver and ours, started alike and asked alike."""

from tests.lab.ours import Ours
from tests.lab.peers import require_peer
from tests.lab.server import Reply, Server
from tests.lab.upstream import Upstream

__all__ = ["Ours", "Reply", "Server", "Upstream", "require_peer"]
