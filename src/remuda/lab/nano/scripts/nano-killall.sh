#!/bin/sh
# Ends nano on this host. What it has kept on disk stays.
root="${REMUDA_HOST_ROOT:-}"
for unit in nano nano-agent; do
    if [ -e "$root/etc/systemd/system/$unit.service" ]; then
        systemctl stop "$unit" || true
    fi
done
exit 0
