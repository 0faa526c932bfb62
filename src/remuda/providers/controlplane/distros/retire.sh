# The last thing a host of a cluster does: its service ends, with all it has started, and does not start again.

set -u
ROOT=${REMUDA_HOST_ROOT:-}

systemctl disable "$REMUDA_UNIT.service" 2>/dev/null
systemctl stop "$REMUDA_UNIT.service"
for bin in /usr/local/bin /opt/bin /opt/rke2/bin; do
	killall=$ROOT$bin/$REMUDA_DISTRO-killall.sh
	[ ! -x "$killall" ] || "$killall"
done
case $(systemctl is-active "$REMUDA_UNIT.service" 2>/dev/null) in
active | activating | reloading | deactivating)
	printf '%s\n' "$REMUDA_UNIT still runs" >&2
	exit 1
	;;
esac
exit 0
