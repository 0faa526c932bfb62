#!/bin/sh
# Takes Rancher's system-agent off this machine: its service, its files, itself, and the manager's way into the cluster.
# What else it has installed stays.

set -eu

main() {
	[ "$(id -u)" = 0 ] || {
		echo "this must run as root: repeat it with sudo" >&2
		exit 1
	}
	config=${CATTLE_AGENT_CONFIG_DIR:-/etc/rancher/agent}
	var=${CATTLE_AGENT_VAR_DIR:-/var/lib/rancher/agent}
	[ ! -d /etc/rancher/agent/var ] || var=${CATTLE_AGENT_VAR_DIR:-/etc/rancher/agent/var}
	if command -v systemctl >/dev/null 2>&1; then
		systemctl disable --now rancher-system-agent >/dev/null 2>&1 || :
		rm -f /etc/systemd/system/rancher-system-agent.service /etc/systemd/system/rancher-system-agent.env
		tunnel=/etc/systemd/system/remuda-tunnel.service
		if [ -e "$tunnel" ]; then
			systemctl disable --now remuda-tunnel >/dev/null 2>&1 || :
			folder=$(sed -n 's|^ExecStart=.* --config "\(/.*\)/config.json"$|\1|p' "$tunnel")
			rm -f "$tunnel" "$tunnel.env"
			[ -z "$folder" ] || rm -rf "$folder"
		fi
		systemctl daemon-reload
		systemctl reset-failed rancher-system-agent >/dev/null 2>&1 || :
	fi
	rm -rf "${var:?}" "${config:?}"
	for prefix in "${CATTLE_AGENT_BIN_PREFIX:-/usr/local}" /usr/local /opt/rancher-system-agent; do
		rm -f "$prefix/bin/rancher-system-agent" "$prefix/bin/rancher-system-agent-uninstall.sh"
	done
	echo "rancher-system-agent is removed"
}

main "$@"
