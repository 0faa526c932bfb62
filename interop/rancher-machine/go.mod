// rancher-machine, at the version the tests run. It is built inside its own module, whose go.mod has its replaces.
module remuda.dev/interop/rancher-machine

go 1.26

require github.com/rancher/machine v0.15.0-rancher145
