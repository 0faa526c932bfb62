"""The simulator: model hosts, workload clusters, etcd members and agents, and the providers that use them.

Everything here can run in virtual time (`loop`), where a day passes in the time it takes to do the day's work, and the
same seed gives the same run; all but that also runs in real time, beside any Kubernetes.
"""
