"""Admission of Cluster API's kinds: defaults, and validation before controllers act on an object.

An engine registers `FUNCTIONS`. All of them are pure. Rules that CEL can express are also in the definitions.
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
