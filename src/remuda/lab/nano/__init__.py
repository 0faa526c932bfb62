"""nano: a stand-in distribution. Outwardly a K3s that runs no Pods, to prove everything around one."""
