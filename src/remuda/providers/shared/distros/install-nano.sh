# nano from its artefact: a folder for each bundle, and a link to the one that counts.

install_files() {
	fetch nano.tar.gz
	sum=$(basename "$(dirname "$fetched")")
	bundle=$REMUDA_VERSION-$(printf '%.12s' "$sum")
	bundles=$ROOT/usr/local/lib/nano
	before=$(basename "$(dirname "$(dirname "$(readlink "$ROOT/usr/local/bin/nano" || echo none/bin/nano)")")")
	if [ ! -d "$bundles/$bundle" ]; then
		rm -rf "$bundles/.new"
		mkdir -p "$bundles/.new"
		tar -xzf "$fetched" -C "$bundles/.new"
		mv "$bundles/.new" "$bundles/$bundle"
	fi
	mkdir -p "$ROOT/usr/local/bin"
	for program in "$bundles/$bundle"/bin/*; do
		ln -sfn "../lib/nano/$bundle/bin/${program##*/}" "$ROOT/usr/local/bin/${program##*/}"
	done
	# The one before stays: it runs until the restart.
	for found in "$bundles"/*; do
		case ${found##*/} in "$bundle" | "$before") ;; *) rm -rf "$found" ;; esac
	done
	host_tool environment NANO_ | write "$UNIT_DIR/$UNIT.service.env" 600
	nano_unit | write "$UNIT_DIR/$UNIT.service" 644
}

nano_unit() {
	if [ "$REMUDA_ROLE" = server ]; then type=notify; else type=exec; fi
	cat <<END
[Unit]
Description=nano, a Kubernetes that runs no Pods
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=$type
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-/etc/systemd/system/%N.service.env
TimeoutStartSec=0
Restart=always
RestartSec=2s
ExecStart=/usr/local/bin/nano $REMUDA_ROLE
END
}
