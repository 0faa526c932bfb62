"""The MachineDeployment controller: one MachineSet per revision of the template, and rollouts between revisions."""
