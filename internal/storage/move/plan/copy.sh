# SPDX-License-Identifier: Apache-2.0
#
# What the two pods of a move run: `serve` receives into /data, `copy` and `finish` send /data to it, `measure` counts.
# TARGET and PORT are the address of the pod that receives; /keys has the keys of this move.
# The result, or the error, is the termination message. Progress is "bytes N" once a second on standard output.
set -eu
umask 077
result=/dev/termination-log
mkdir -p /run/sshd /root /tmp
printf 'root:x:0:0:root:/root:/bin/dash\nsshd:x:100:65534:sshd:/run/sshd:/bin/false\n' >/etc/passwd
printf 'root:x:0:\nnogroup:x:65534:\n' >/etc/group

# lost+found belongs to each file system. Clusters are often far apart, so what is sent is compressed, as lightly as zstd can.
mirror() {
	rsync --archive --hard-links --acls --xattrs --sparse --one-file-system --numeric-ids --no-human-readable --compress --compress-choice=zstd --compress-level=1 \
		--inplace --delete --exclude=/lost+found --timeout=60 --rsh="$shell" "$@" /data/ root@"$TARGET"::data/
}

# number NAME: one line of the statistics.
number() { sed -n "s/^$1: *\([0-9]*\).*/\1/p" /tmp/statistics; }

fail() {
	{ printf '%s, exit code %s: ' "$1" "$2"; tail -c 300 /tmp/errors; } >$result
	cat $result >&2
	exit 1
}

# settle has the target write to its disk what it has received, so that a crash of its node loses nothing, and reports errors of the disk.
settle() {
	$shell root@"$TARGET" sync </dev/null >/dev/null 2>/tmp/errors || fail 'the target could not write to its disk' $?
}

# compare reads files of both sides, all or those that an option names, and fails if any differs.
compare() {
	mirror "$@" --checksum --dry-run --itemize-changes >/tmp/differences 2>/tmp/errors || fail 'the verification ended' $?
	if [ -s /tmp/differences ]; then
		cp /tmp/differences /tmp/errors
		fail 'the copy differs from the source' 1
	fi
}

# watch PID: how many bytes the process has written, while it lives.
watch() {
	while [ -r /proc/"$1"/io ]; do
		sed -n 's/^wchar: /bytes /p' /proc/"$1"/io 2>/dev/null || return 0
		sleep 1
	done
}

measure() {
	mkdir -p /tmp/empty
	rsync --archive --one-file-system --dry-run --stats --no-human-readable --exclude=/lost+found /data/ /tmp/empty/ >/tmp/statistics 2>/tmp/errors
}

send() {
	start=$(date +%s)
	shell="ssh -F none -p $PORT -i /keys/client -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile=/keys/known -o StrictHostKeyChecking=yes -o HostKeyAlias=move -o ConnectTimeout=5 -o ServerAliveInterval=5 -o LogLevel=ERROR"
	# The address may still be on its way to this cluster, and the policy that admits this pod.
	tries=60
	until $shell root@"$TARGET" check </dev/null >/dev/null 2>/tmp/errors; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || fail 'cannot reach the pod that receives' 255
		sleep 0.5
	done
	more=
	if [ "$1" = copy ]; then
		measure && echo "total $(number 'Total file size')"
	else
		# The last pass reads every file of both sides: an application may have changed one and not its times.
		more='--checksum --out-format=differs:%i:%n'
	fi
	mirror $more --stats >/tmp/statistics 2>/tmp/errors &
	copying=$!
	watch $copying &
	code=0
	wait $copying || code=$?
	# 24: files vanished during the pass, as an application deletes its logs. rsync has sent all others. After the fence no file can vanish.
	case $1:$code in
	*:0 | copy:24) ;;
	*) fail 'the copy ended' $code ;;
	esac
	settle
	verified=false
	if [ "$1" = finish ]; then
		# What did not differ is verified already. A name with special characters is printed in another form, so all files are compared then.
		# The prefix ./ keeps a name that begins with # or ; from being taken for a comment.
		sed -n 's,^differs:[^*].\{10\}:,./,p' /tmp/statistics | sed 's,/$,,' >/tmp/differs
		if [ -n "$(sed -n '/\\#/{p;q}' /tmp/differs)" ]; then
			compare
		elif [ -s /tmp/differs ]; then
			compare --files-from=/tmp/differs
		fi
		verified=true
		# The verified copy is out of reach. A pod of an older version goes on, until it is deleted.
		$shell root@"$TARGET" end </dev/null >/dev/null 2>&1 || :
	fi
	changed=$(number 'Number of regular files transferred')
	sent=$(($(number 'Total bytes sent') + $(number 'Total bytes received')))
	printf '{"all":{"files":%s,"bytes":%s},"sent":{"files":%s,"bytes":%s},"seconds":%s,"verified":%s}' \
		"$(number 'Number of files')" "$(number 'Total file size')" "$changed" "$sent" "$(($(date +%s) - start))" $verified >$result
}

case $1 in
serve)
	cat >/run/sshd_config <<-END
		Port $PORT
		HostKey /keys/server
		AuthorizedKeysFile /keys/authorized
		StrictModes no
		PasswordAuthentication no
		KbdInteractiveAuthentication no
		UsePAM no
		PermitRootLogin prohibit-password
		AllowUsers root
		DisableForwarding yes
		PermitTTY no
		PidFile /run/sshd.pid
		PrintMotd no
		ClientAliveInterval 5
		ForceCommand case "\$SSH_ORIGINAL_COMMAND" in check) ;; sync) exec sync -f /data ;; end) : >/run/ended; read pid </run/sshd.pid; kill \$pid ;; *) exec rsync --server --daemon --config=/run/rsyncd.conf . ;; esac
	END
	cat >/run/rsyncd.conf <<-END
		use chroot = yes
		uid = 0
		gid = 0
		numeric ids = yes
		munge symlinks = no
		log file = /dev/null
		[data]
		path = /data
		read only = no
		write only = yes
		list = no
	END
	/usr/sbin/sshd -D -e -f /run/sshd_config &
	server=$!
	trap 'kill $server' TERM
	code=0
	wait $server || code=$?
	[ ! -e /run/ended ] || exit 0
	exit $code
	;;
measure)
	code=0
	measure || code=$?
	[ $code = 0 ] || [ $code = 24 ] || fail 'cannot read the files' $code
	printf '{"all":{"files":%s,"bytes":%s}}' "$(number 'Number of files')" "$(number 'Total file size')" >$result
	;;
copy | finish)
	send "$1"
	;;
esac
