"""The simulator: model hosts, workload clusters, etcd members and agents, and the providers that use them.

Everything can run in virtual time (`loop`), where a day takes only as long as the day's work, and the same seed gives
the same run. Everything except the loop also runs in real time, beside any Kubernetes.
"""
