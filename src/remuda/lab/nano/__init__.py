"""nano: a stand-in distribution. Outwardly it is a K3s that runs no Pods, for tests of everything around K3s."""
