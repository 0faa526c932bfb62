module remuda.dev/interop/system-agent

go 1.26.0

require github.com/rancher/system-agent v0.15.0
