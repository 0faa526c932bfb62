"""The MachineDeployment controller: one MachineSet per revision of the template, and the way from one to the next."""
