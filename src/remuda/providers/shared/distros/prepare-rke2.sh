# What each installation of RKE2 needs, whether artefacts or an installer image bring the program. It replaces functions
# of install-common.sh.
#
#   REMUDA_ACTIVE_FILE   on servers: a file that exists only while systemd calls the unit active
#   REMUDA_PROFILE       that of the config file; not set: none

prepare_host() {
	rm -f "$STATE_DIR/advice"
	prepare_accounts
	[ -z "${REMUDA_ACTIVE_FILE:-}" ] || mark_active_unit
}

# mark_active_unit: the static Pods of RKE2 outlive its unit, so those of before answer probes until the new RKE2 has
# replaced them. RKE2 notifies systemd when it has. This drop-in makes that visible to a probe, which trusts the
# authority by this file. The file is a link, so it always leads to the current authority. A power cut leaves it behind;
# ExecStartPre removes it then.
mark_active_unit() {
	drop_in=$UNIT_DIR/$UNIT.service.d/50-remuda-active.conf
	marks=$(cat "$drop_in" 2>/dev/null || true)
	file=$(unit_word "$ROOT$REMUDA_ACTIVE_FILE")
	write "$drop_in" 644 <<END
[Service]
ExecStartPre=-/bin/rm -f $file
ExecStartPost=-/bin/ln -sfn $(unit_word "$DATA_DIR/server/tls/server-ca.crt") $file
ExecStopPost=-/bin/rm -f $file
END
	# Without it, a unit that is activating now would become active without the file.
	[ "$(cat "$drop_in")" = "$marks" ] || systemctl daemon-reload
}

# unit_word TEXT: the text as one word of a command in a unit file.
unit_word() {
	printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g; s/%/%%/g; s/\$/$$/g')"
}

# The unit may have become active before its drop-in was there. A job that waits is a restart that is about to begin.
confirm_active() {
	[ -n "${REMUDA_ACTIVE_FILE:-}" ] || return 0
	[ "$(systemctl is-active "$UNIT.service" 2>/dev/null || true)" = active ] || return 0
	case $(systemctl show --property=Job --value "$UNIT.service" 2>/dev/null || true) in
	'' | 0) ln -sfn "$DATA_DIR/server/tls/server-ca.crt" "$ROOT$REMUDA_ACTIVE_FILE" ;;
	esac
}

forget_active() {
	[ -z "${REMUDA_ACTIVE_FILE:-}" ] || rm -f "$ROOT$REMUDA_ACTIVE_FILE"
}

# advise TEXT: what a person has to do before the unit can start. It is reported with the unit's error.
advise() {
	say "$*"
	printf '%s\n' "$*" >>"$STATE_DIR/advice"
}

# prepare_accounts: a server with one of these profiles runs etcd as user etcd, and does not start without it.
prepare_accounts() {
	case $REMUDA_ROLE/${REMUDA_PROFILE:-} in server/cis* | server/etcd) ;; *) return 0 ;; esac
	has_account group || groupadd --system ${ROOT:+--prefix "$ROOT"} etcd || true
	has_account passwd || useradd --system --gid etcd --no-create-home --shell /sbin/nologin --comment "etcd user" \
		${ROOT:+--prefix "$ROOT"} etcd || true
	if ! has_account group || ! has_account passwd; then
		advise "profile $REMUDA_PROFILE needs user and group etcd, which cannot be created here: create them on the host"
	fi
}

# has_account FILE: RKE2 is linked statically, and finds accounts of files alone.
has_account() { grep -q '^etcd:' "$ROOT/etc/$1" 2>/dev/null; }

# apply_sysctls FOLDER…: the release brings the kernel's settings that the CIS profile asks for, in one of these folders.
apply_sysctls() {
	case ${REMUDA_PROFILE:-} in cis*) ;; *) return 0 ;; esac
	target=/etc/sysctl.d/60-rke2-cis.conf
	for folder in "$@"; do
		[ -f "$ROOT$folder/share/rke2/rke2-cis-sysctl.conf" ] || continue
		place "$ROOT$folder/share/rke2/rke2-cis-sysctl.conf" "$ROOT$target" 644
		break
	done
	# Hosts that are folders share the kernel of the machine they stand on.
	[ -n "$ROOT" ] || sysctl -p "$target" >/dev/null 2>&1 ||
		advise "profile $REMUDA_PROFILE needs the kernel settings of $target, which cannot be set here: set them on the host"
}

run_image() {
	run.sh || {
		code=$?
		confirm_active
		exit "$code"
	}
	apply_sysctls /usr/local /opt/rke2 /usr
	confirm_active
}
