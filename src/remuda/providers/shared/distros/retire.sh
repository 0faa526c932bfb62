# The last thing a host of a cluster does: its service ends, with all it has started, and does not start again.
#
#   REMUDA_DISTRO REMUDA_UNIT        k3s, and its unit, without .service
#   REMUDA_DATA_DIR                  of the distribution
#   K3S_DATA_DIR or RKE2_DATA_DIR    the same, for the distribution's own script
#   REMUDA_ACTIVE_FILE               RKE2's servers: see prepare-rke2.sh

set -u
ROOT=${REMUDA_HOST_ROOT:-}

fail() {
	printf '%s\n' "$*" >&2
	exit 1
}

# shims: process ids of the distribution's containers that run. A distribution's script ends well whether or not it has
# found any.
shims() {
	COLUMNS=2147483647 ps -e -o pid= -o args= |
		awk -v data="$ROOT$REMUDA_DATA_DIR/data/" 'index($2, data) == 1 && $2 ~ "/bin/containerd-shim" { print $1 }'
}

systemctl disable "$REMUDA_UNIT.service" 2>/dev/null
systemctl stop "$REMUDA_UNIT.service"
for bin in /usr/local/bin /opt/bin /opt/rke2/bin /usr/bin; do
	killall=$ROOT$bin/$REMUDA_DISTRO-killall.sh
	[ ! -x "$killall" ] || "$killall"
done
drop_ins=$ROOT/etc/systemd/system/$REMUDA_UNIT.service.d # a later installation by others is not bound by ours
rm -f "$drop_ins"/50-remuda*.conf
rmdir "$drop_ins" 2>/dev/null
[ -z "${REMUDA_ACTIVE_FILE:-}" ] || rm -f "$ROOT$REMUDA_ACTIVE_FILE"
case $(systemctl is-active "$REMUDA_UNIT.service" 2>/dev/null) in
active | activating | reloading | deactivating) fail "$REMUDA_UNIT still runs" ;;
esac
for _ in 1 2 3 4 5; do
	left=$(shims)
	[ -n "$left" ] || exit 0
	sleep 1 # a killed process needs a moment to end
done
fail "containers of $REMUDA_DISTRO still run:" $left
