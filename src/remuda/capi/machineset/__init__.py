"""The MachineSet controller: so many Machines made from one template."""
