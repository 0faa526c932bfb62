"""Admission of provisioning Clusters, of the `<Driver>Config`s their pools refer to, and of deletions of their objects.

`FUNCTIONS` is what an engine registers, `webhooks` the same for an API server elsewhere. All of them are pure; what
fits CEL is also in the definitions. Kinds of Configs come and go with drivers: one function is for all of them.
"""

from remuda.kube.admission import EVERY_KIND, AdmissionRegistration
from remuda.kube.client import Target
from remuda.providers.shared import names
from remuda.provisioning.admission import cluster, deletion, policy, rights
from remuda.provisioning.types import CLUSTER
from remuda.runtime.webhooks import Webhook, join

FUNCTIONS: list[AdmissionRegistration] = [
    AdmissionRegistration(CLUSTER.group, CLUSTER.plural, cluster.admit, needs=rights.of_cluster),
    AdmissionRegistration(names.CONFIG_GROUP, EVERY_KIND, policy.admit_config, needs=rights.of_config),
    *deletion.registrations(),
]


def webhooks() -> list[Webhook]:
    """Return the webhooks that do the same on an API server elsewhere."""
    return [
        *join((CLUSTER,), FUNCTIONS[:1]),
        Webhook(
            kind="MachineConfig",
            target=Target(names.CONFIG_API_VERSION, EVERY_KIND),
            function=policy.admit_config,
            operations=("CREATE", "UPDATE"),
            needs=rights.of_config,
        ),
        *deletion.webhooks(),
    ]
