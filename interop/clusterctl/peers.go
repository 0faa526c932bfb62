//go:build peers

// Package peers pins the clusterctl the interop tests run, and the Cluster API definitions ours are compared with.
package peers

import _ "sigs.k8s.io/cluster-api/cmd/clusterctl/cmd"
