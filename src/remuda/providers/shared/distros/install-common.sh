# What every installation begins and ends with. It runs as `sh -c`: this file, then those of a distribution, then `main`.
#
# The distribution's file defines `install_files`: it puts the version that is wanted where it belongs, unit file
# included, changes nothing when it is there already, and neither starts nor stops anything. It may use what is defined
# here. Every path is below $ROOT, which is empty on real hosts.
#
#   REMUDA_DISTRO REMUDA_VERSION   k3s, v1.36.4+k3s1
#   REMUDA_ROLE REMUDA_UNIT        server or agent, and its unit, without .service
#   REMUDA_DATA_DIR                of the distribution
#   REMUDA_CONFIG_DIR              of the distribution: /etc/rancher/k3s
#   REMUDA_STATE_DIR               what we remember on this host
#   REMUDA_AGENT_DIR               of the node agent
#   REMUDA_ARTEFACTS               lines "architecture name sha256"; none: an image has brought run.sh
#   REMUDA_INIT                    what the config of the host that begins the cluster holds
#   RESTART_STAMP                  a restart is due when it changes

set -eu
umask 022

ROOT=${REMUDA_HOST_ROOT:-}
UNIT=$REMUDA_UNIT
DATA_DIR=$ROOT$REMUDA_DATA_DIR
CONFIG_DIR=$ROOT$REMUDA_CONFIG_DIR
STATE_DIR=$ROOT$REMUDA_STATE_DIR
CACHE_DIR=$STATE_DIR/artefacts
UNIT_DIR=$ROOT/etc/systemd/system

say() { printf '%s\n' "$*"; }

fail() {
	printf '%s\n' "$*" >&2
	exit 1
}

host_tool() { "${REMUDA_PYTHON:-python3}" "$STATE_DIR/host-tool.py" "$@"; }

architecture() {
	case $(uname -m) in
	x86_64 | amd64) echo amd64 ;;
	aarch64 | arm64) echo arm64 ;;
	armv7* | armhf) echo arm ;;
	*) uname -m ;;
	esac
}

# checksum NAME: that of an artefact for this host's architecture ("any" will do for all); nothing if there is none.
checksum() {
	printf '%s\n' "$REMUDA_ARTEFACTS" | while read -r found_architecture found_name found_sum; do
		[ "$found_name" = "$1" ] || continue
		case $found_architecture in "$(architecture)" | any)
			echo "$found_architecture $found_sum"
			break
			;;
		esac
	done
}

# fetch NAME: downloads an artefact, verified, unless it is there; `fetched` is its path.
fetch() {
	set -- "$1" $(checksum "$1")
	[ $# -eq 3 ] || fail "there is no $1 of $REMUDA_DISTRO $REMUDA_VERSION for $(architecture): add it with 'remuda artefacts add'"
	fetched=$CACHE_DIR/$3/$1
	[ -f "$fetched" ] || host_tool fetch "artefacts/$REMUDA_DISTRO/$REMUDA_VERSION/$2/$1" "$3" "$fetched"
}

# place_images: puts every archive of images where the service reads them when it starts; others of ours go.
place_images() {
	folder=$DATA_DIR/agent/images
	for name in $(printf '%s\n' "$REMUDA_ARTEFACTS" | awk '$2 ~ /^images.*[.]tar[.]zst$/ { print $2 }' | sort -u); do
		[ -n "$(checksum "$name")" ] || continue # of other architectures
		fetch "$name"
		place "$fetched" "$folder/remuda-$name" 644
	done
	for found in "$folder"/remuda-images*; do
		name=${found##*/remuda-}
		[ ! -e "$found" ] || [ -n "$(checksum "$name")" ] || rm -f "$found"
	done
}

# place SOURCE TARGET MODE: copies a file if it is another one; never half of it.
place() {
	if ! cmp -s "$1" "$2"; then
		mkdir -p "$(dirname "$2")"
		cp "$1" "$2.new"
		chmod "$3" "$2.new"
		mv -f "$2.new" "$2"
	fi
}

# write TARGET MODE: the same with standard input.
write() {
	mkdir -p "$STATE_DIR"
	(umask 077 && cat >"$STATE_DIR/incoming")
	place "$STATE_DIR/incoming" "$1" "$2"
	rm -f "$STATE_DIR/incoming"
}

# writable DIRECTORY: whether files can be put there, perhaps after making it.
writable() {
	mkdir -p "$1" 2>/dev/null && [ -w "$1" ]
}

# relabel PATH…: gives files the labels that the host's SELinux policy has for their places. Copies bear those of where
# they were made.
relabel() {
	if command -v restorecon >/dev/null 2>&1; then
		restorecon -R -i "$@" || say "SELinux labels of $* cannot be set"
	fi
}

# has_joined: whether a server has let this host in, or it has data of its own.
has_joined() { [ -e "$DATA_DIR/agent/client-kubelet.crt" ] || [ -e "$DATA_DIR/server/db/etcd" ]; }

# choose_server: `moved` is not empty when a service that never joined would go on trying to by the wrong server.
choose_server() {
	if has_joined; then joined=yes; else joined=no; fi
	join_file=$CONFIG_DIR/config.yaml.d/51-join.yaml
	before=$(cat "$join_file" 2>/dev/null || true)
	host_tool join "$CONFIG_DIR/remuda-servers" "$CONFIG_DIR/remuda-ca.crt" "$join_file" "$REMUDA_INIT" "$joined"
	moved=
	if [ "$joined" = no ] && [ -n "$before" ] && [ "$(cat "$join_file")" != "$before" ]; then
		moved=yes
		say "$UNIT has not joined, and shall by another server"
	fi
}

# guard_join_file: a server that is started without this file, by a boot or by hand, would begin a cluster of its own:
# RKE2 does so even without etcd.
guard_join_file() {
	printf '[Unit]\nAssertPathExists=%s\n' "$REMUDA_CONFIG_DIR/config.yaml.d/51-join.yaml" |
		write "$UNIT_DIR/$UNIT.service.d/50-remuda-join.conf" 644
}

# What distributions do beside (prepare-<distribution>.sh): before anything is installed; when the unit runs as it is
# wanted; before it is stopped; and to let an installer image work.
prepare_host() { :; }
confirm_active() { :; }
forget_active() { :; }
run_image() { exec run.sh; }

# Old artefacts go when the new ones are in place; what is fetched is kept, for uninstalled hosts and retries.
forget_old_artefacts() {
	for found in "$CACHE_DIR"/*; do
		[ -d "$found" ] || continue
		case $REMUDA_ARTEFACTS in *"${found##*/}"*) ;; *) rm -rf "$found" ;; esac
	done
}

# The end of what runs is waited for, or its last answers would be taken for those of what comes. The start is not: a
# unit may need the rest of the cluster to become active. Probes tell when it is.
restart_if_due() {
	remembered=$(cat "$STATE_DIR/restart-stamp" 2>/dev/null || true)
	state=$(systemctl is-active "$UNIT.service" 2>/dev/null || true)
	case $moved$remembered/$state in
	"$RESTART_STAMP/active" | "$RESTART_STAMP/activating" | "$RESTART_STAMP/reloading")
		confirm_active
		say "$UNIT runs with what is wanted"
		return
		;;
	esac
	systemctl daemon-reload
	systemctl enable "$UNIT.service"
	systemctl reset-failed "$UNIT.service" 2>/dev/null || true
	forget_active
	systemctl stop "$UNIT.service"
	systemctl --no-block start "$UNIT.service"
	printf '%s\n' "$RESTART_STAMP" | write "$STATE_DIR/restart-stamp" 600
	say "$UNIT is being restarted"
}

main() {
	host_tool authorities "$STATE_DIR/authorities" "$DATA_DIR"
	choose_server
	guard_join_file
	prepare_host
	if [ -z "$REMUDA_ARTEFACTS" ]; then
		# The installer of an image restarts by the stamp alone.
		forget_active
		[ -z "$moved" ] || systemctl --no-block try-restart "$UNIT.service" || true
		run_image
		return
	fi
	install_files
	forget_old_artefacts
	restart_if_due
}
