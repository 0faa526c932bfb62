# K3s from artefacts: one binary, and perhaps an archive of images.

install_files() {
	bin=/usr/local/bin
	writable "$ROOT$bin" || bin=/opt/bin
	fetch k3s
	place "$fetched" "$ROOT$bin/k3s" 755
	for name in kubectl crictl ctr; do
		[ -e "$ROOT$bin/$name" ] || command -v "$name" >/dev/null 2>&1 || ln -s k3s "$ROOT$bin/$name"
	done
	place_images
	host_tool environment K3S_ CONTAINERD_ | write "$UNIT_DIR/$UNIT.service.env" 600
	k3s_unit | write "$UNIT_DIR/$UNIT.service" 644
	k3s_killall | write "$ROOT$bin/k3s-killall.sh" 755
	relabel "$ROOT$bin"/k3s* "$UNIT_DIR"/k3s*
}

k3s_unit() {
	if [ "$REMUDA_ROLE" = server ]; then type=notify; else type=exec; fi
	cat <<END
[Unit]
Description=Lightweight Kubernetes
Documentation=https://k3s.io
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=$type
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-/etc/systemd/system/%N.service.env
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=$bin/k3s $REMUDA_ROLE
END
}

# Containers outlive the service, by design. This ends them too.
k3s_killall() {
	cat <<END
#!/bin/sh
systemctl stop k3s.service k3s-agent.service 2>/dev/null
tree() {
	for child in \$(ps -o pid= --ppid "\$1" 2>/dev/null); do tree "\$child"; done
	echo "\$1"
}
for shim in \$(ps -e -o pid= -o args= | awk '\$2 ~ "^$REMUDA_DATA_DIR/data/[^/]*/bin/containerd-shim" { print \$1 }'); do
	kill -9 \$(tree "\$shim") 2>/dev/null
done
for mounted in \$(awk '\$2 ~ "^(/run/k3s|$REMUDA_DATA_DIR|/var/lib/kubelet/p|/run/netns/cni-)" { print \$2 }' /proc/self/mounts | sort -r); do
	umount "\$mounted" 2>/dev/null
done
for link in cni0 flannel.1 flannel-v6.1 flannel-wg flannel-wg-v6; do
	ip link delete "\$link" 2>/dev/null
done
exit 0
END
}
