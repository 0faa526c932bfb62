#!/bin/sh
# Removes rke2 from this host, with its data. /etc/rancher/node stays, as it does with RKE2.
root=${REMUDA_HOST_ROOT:-}${INSTALL_RKE2_ROOT:-/usr/local}
"$root/bin/rke2-killall.sh"
for unit in rke2-server rke2-agent; do
	systemctl disable "$unit.service" 2>/dev/null
	rm -f "$root/lib/systemd/system/$unit.service" "$root/lib/systemd/system/$unit.env"
done
systemctl daemon-reload 2>/dev/null
rm -rf "${REMUDA_HOST_ROOT:-}/etc/rancher/rke2" "${REMUDA_HOST_ROOT:-}${RKE2_DATA_DIR:-/var/lib/rancher/rke2}" "$root/share/rke2"
rm -f "$root/bin/rke2" "$root/bin/rke2-killall.sh" "$root/bin/rke2-uninstall.sh"
exit 0
