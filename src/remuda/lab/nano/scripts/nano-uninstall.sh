#!/bin/sh
# Removes nano from this host, with everything it has kept. As with K3s, /etc/rancher/node stays: a host that comes back under the
# same name shows the same password.
root="${REMUDA_HOST_ROOT:-}"
data="${NANO_DATA_DIR:-/var/lib/rancher/nano}"
bin="$root/usr/local/bin"
if [ -x "$bin/nano-killall.sh" ]; then
    "$bin/nano-killall.sh"
fi
systemctl disable nano 2>/dev/null || true
rm -f "$root/etc/systemd/system/nano.service" "$root/etc/systemd/system/nano.service.env"
systemctl daemon-reload 2>/dev/null || true
systemctl reset-failed nano 2>/dev/null || true
rm -rf "$root/etc/rancher/nano" "${root}$data" "$root/usr/local/lib/nano"
rm -f "$bin/nano" "$bin/nano-killall.sh" "$bin/nano-uninstall.sh" "$bin/nano-agent-uninstall.sh"
exit 0
