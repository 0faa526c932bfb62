"""Admission of Cluster API's kinds: what is filled in, and what is refused before anything is made of it.

`FUNCTIONS` is what an engine registers. All of them are pure; what fits CEL is also in the definitions.
"""

from remuda.capi.admission import (
    cluster,
    machine,
    machinedeployment,
    machinedrainrule,
    machinehealthcheck,
    machineset,
)
from remuda.capi.types import (
    CLUSTER,
    MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_DRAIN_RULE,
    MACHINE_HEALTH_CHECK,
    MACHINE_SET,
)
from remuda.kube.admission import AdmissionRegistration

FUNCTIONS: list[AdmissionRegistration] = [
    AdmissionRegistration(CLUSTER.group, CLUSTER.plural, cluster.admit),
    AdmissionRegistration(MACHINE.group, MACHINE.plural, machine.admit),
    AdmissionRegistration(MACHINE_SET.group, MACHINE_SET.plural, machineset.admit),
    AdmissionRegistration(MACHINE_DEPLOYMENT.group, MACHINE_DEPLOYMENT.plural, machinedeployment.admit),
    AdmissionRegistration(MACHINE_HEALTH_CHECK.group, MACHINE_HEALTH_CHECK.plural, machinehealthcheck.admit),
    AdmissionRegistration(MACHINE_DRAIN_RULE.group, MACHINE_DRAIN_RULE.plural, machinedrainrule.admit),
]
