//go:build peers

// Package peers pins the etcd the interop tests run kube-apiserver on.
package peers

import _ "go.etcd.io/etcd/server/v3"
