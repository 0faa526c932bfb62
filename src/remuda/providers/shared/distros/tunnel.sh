# The tunnel's client as a service of its own. It runs as `sh -c`, again and again: this file, then a word.
#
#   keep     the program is the one the manager serves now, and the service runs with what is wanted
#   remove   nothing is left of it
#
# Nothing depends on it, so it always ends well: what keeps it from working it says. It says the same as long as nothing
# changes. Settings, token and authorities are files of the plan, in the same folder as the program. Every path is
# below $ROOT, which is empty on real hosts.
#
#   REMUDA_STATE_DIR   what we remember on this host
#   REMUDA_AGENT_DIR   of the node agent

set -u
umask 077

ROOT=${REMUDA_HOST_ROOT:-}
STATE_DIR=$ROOT$REMUDA_STATE_DIR
FOLDER=$STATE_DIR/tunnel
PROGRAM=$FOLDER/remuda-tunnel.pyz
UNIT=remuda-tunnel.service
UNIT_FILE=$ROOT/etc/systemd/system/$UNIT
LOOK_MINUTES=360

say() {
	printf '%s\n' "$*"
	exit 0
}

host_tool() { "$python" "$STATE_DIR/host-tool.py" "$@"; }

# write TARGET: standard input, if that is another; never half of it.
write() {
	cat >"$FOLDER/incoming" || return
	if cmp -s "$FOLDER/incoming" "$1"; then
		rm -f "$FOLDER/incoming"
	else
		mv -f "$FOLDER/incoming" "$1"
	fi
}

unit() {
	cat <<END
[Unit]
Description=The way of the manager to this cluster
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Install]
WantedBy=multi-user.target

[Service]
Type=exec
Environment=MALLOC_ARENA_MAX=2
EnvironmentFile=-$UNIT_FILE.env
ExecStart=$python -I -S "$PROGRAM" tunnel --config "$FOLDER/config.json"
Restart=always
RestartSec=5s
LimitNOFILE=16384
TasksMax=64
MemoryMax=512M
NoNewPrivileges=yes
END
}

# The program is asked for when there is none, every few hours, and with new settings, which an old one may not know.
fresh_program() {
	looked=$(find "$FOLDER/looked" -mmin -"$LOOK_MINUTES" -newer "$FOLDER/config.json" 2>/dev/null)
	[ -z "$looked" ] || [ ! -f "$PROGRAM" ] || return 0
	host_tool latest assets/remuda-agent.pyz "$PROGRAM" >/dev/null 2>"$FOLDER/trouble" && : >"$FOLDER/looked" && return
	[ -f "$PROGRAM" ] || say "no tunnel: its program cannot be had: $(cat "$FOLDER/trouble")"
}

keep() {
	python=$(command -v "${REMUDA_PYTHON:-python3}") || say "no tunnel: this host has no python3"
	"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || say "no tunnel: $python is older than Python 3.9"
	command -v systemctl >/dev/null || say "no tunnel: this host has no systemd"
	[ -f "$FOLDER/config.json" ] || say "no tunnel: its settings are not here yet"
	fresh_program
	mkdir -p "$(dirname "$UNIT_FILE")"
	host_tool environment | write "$UNIT_FILE.env"
	unit | write "$UNIT_FILE"
	chmod 644 "$UNIT_FILE"
	wanted=$(cat "$PROGRAM" "$UNIT_FILE" "$UNIT_FILE.env" "$FOLDER/config.json" | cksum)
	case $(cat "$FOLDER/running" 2>/dev/null)/$(systemctl is-active "$UNIT" 2>/dev/null) in
	"$wanted/active" | "$wanted/activating") say "$UNIT runs" ;;
	esac
	systemctl daemon-reload
	systemctl enable "$UNIT" >/dev/null 2>&1
	systemctl restart "$UNIT" || say "no tunnel: $UNIT does not start"
	printf '%s\n' "$wanted" >"$FOLDER/running"
	say "$UNIT runs"
}

remove() {
	if [ -e "$UNIT_FILE" ]; then
		systemctl disable "$UNIT" >/dev/null 2>&1
		systemctl stop "$UNIT"
		rm -f "$UNIT_FILE" "$UNIT_FILE.env"
		systemctl daemon-reload
	fi
	rm -rf "$FOLDER"
	say "there is no $UNIT here"
}
