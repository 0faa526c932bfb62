// A docker-machine driver of somebody else, as a plugin of its own. Built inside its own module.
module remuda.dev/interop/machine-plugin

go 1.26

require github.com/machine-drivers/docker-machine-driver-vmware v0.1.5
