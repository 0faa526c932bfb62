module remuda.dev/interop/k3s

go 1.26.0

require github.com/k3s-io/k3s v1.31.0-rc1.0.20241015183003-536fa44eb04f
