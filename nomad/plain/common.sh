# Read first by every script here, which /bin/sh runs in the runner: dash, bash
# or busybox's ash. Nothing that comes from a client is ever part of a script.
LC_ALL=C
export LC_ALL
nl='
'
# next reads a value from the server: lines whose first byte is "+" for all but
# the last, in which a backslash begins an octal number. Reading it from the
# terminal must change nothing, so that all else is printable and lines are short.
next() {
	value=
	while IFS= read -r line || exit 125; do
		part=${line#?}
		case $part in
		*\\*)
			part=$(printf '%b_' "$part")
			part=${part%_}
			;;
		esac
		value=$value$part
		case $line in
		.*) return ;;
		esac
	done
}
# tell says something that no program can: none knows the secret.
tell() {
	printf '\036%s %s\036' "$secret" "$*"
}
# hold goes on until the server has all that was printed, since some drivers
# throw away what is on its way when a command ends. After the end of stdin the
# server can't say so any more, and a while must do.
hold() {
	while IFS= read -r line; do
		case $line in
		*"$secret") return ;;
		esac
	done
	sleep 10
}
next
secret=$value
