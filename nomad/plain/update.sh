# Deletes and writes files: checks all first, and then is told the contents. How
# to take an exact number of bytes from stdin is told by the server.
take=$1
exec 2>/dev/null
umask 022
next
name=$value
temporary=
trap '[ -z "$temporary" ] || rm -f -- "$temporary"' EXIT
refuse() {
	tell refused "$@"
	hold
	exit
}
there() {
	[ -e "$1" ] || [ -L "$1" ]
}
# place refuses what can't be put, or deleted, below the nearest directory that
# there is.
place() {
	above=${path%/*}
	while [ -n "$above" ] && ! there "$above"; do
		above=${above%/*}
	done
	above=${above:-/}
	[ -d "$above" ] || refuse wrongType "$1" "$index"
	[ -w "$above" ] && [ -x "$above" ] || refuse denied "$1" "$index"
}
next
deletes=$value
set --
index=0
while [ "$index" -lt "$deletes" ]; do
	next
	path=$value
	next
	inside=$value
	if [ -n "$inside" ]; then
		[ ! -d "$path" ] || [ -w "$path" ] || refuse denied delete "$index"
	elif there "$path"; then
		place delete
	fi
	set -- "$@" "$path" "$inside"
	index=$((index + 1))
done
next
writes=$value
index=0
while [ "$index" -lt "$writes" ]; do
	next
	path=$value
	next
	kind=$value
	next
	mode=$value
	next
	# What this update deletes, or makes itself, can't be checked.
	if [ -z "$value" ]; then
		place write
		if [ "$kind" = file ]; then
			[ ! -d "$path" ] || [ -L "$path" ] || refuse directory write "$index"
		else
			! there "$path" || [ -d "$path" ] || refuse wrongType write "$index"
		fi
	fi
	set -- "$@" "$path" "$kind" "$mode"
	index=$((index + 1))
done
tell ready
index=0
while [ "$index" -lt "$deletes" ]; do
	path=$1
	inside=$2
	shift 2
	if [ -n "$inside" ] && [ -d "$path" ]; then
		if find "$path/." -mindepth 1 -maxdepth 1 -exec rm -rf -- {} +; then
			tell deleted "$index"
		else
			tell failed delete "$index" denied
		fi
	elif [ -z "$inside" ] && there "$path"; then
		if rm -rf -- "$path" && ! there "$path"; then
			tell deleted "$index"
		else
			tell failed delete "$index" denied
		fi
	fi
	index=$((index + 1))
done
bytes() {
	case $take in
	head) head -c "$1" ;;
	dd) dd bs="$1" count=1 iflag=fullblock ;;
	*) dd bs=1 count="$1" ;;
	esac
}
# receive writes a content to descriptor 5: pieces, each after its size, until
# one of 0. All is taken, also what there is no room for.
receive() {
	full=
	while next && [ "$value" -gt 0 ]; do
		bytes "$value" | {
			cat >&5 || {
				cat >/dev/null
				false
			}
		} || full=1
	done
	[ -z "$full" ]
}
# file writes a file, and sets why to what failed.
file() {
	parent=${path%/*}
	why=
	mkdir -p -- "${parent:-/}" || why=denied
	temporary=$parent/.rockpool-$name
	[ -n "$why" ] || (umask 077 && set -C && : >"$temporary") || why=denied
	if [ -n "$why" ]; then
		temporary=
		receive 5>/dev/null
		return
	fi
	receive 5>>"$temporary" || why=full
	[ -n "$why" ] || chmod "$mode" "$temporary" || why=denied
	if [ -z "$why" ] && [ -d "$path" ]; then
		# A link to a directory is replaced, and nothing put behind it.
		if [ -L "$path" ]; then
			rm -f -- "$path" || why=denied
		else
			why=directory
		fi
	fi
	[ -n "$why" ] || mv -f -- "$temporary" "$path" || why=denied
	[ -z "$why" ] || rm -f -- "$temporary"
	temporary=
}
directory() {
	why=
	old=
	[ ! -d "$path" ] || old=1
	mkdir -p -- "$path" || why=denied
	[ -n "$why" ] || [ -z "$mode" ] || chmod "$mode" "$path" || why=denied
}
index=0
while [ "$index" -lt "$writes" ]; do
	path=$1
	mode=$3
	"$2"
	shift 3
	if [ -n "$why" ]; then
		tell failed write "$index" "$why"
	else
		tell written "$index"
	fi
	index=$((index + 1))
done
if [ "$writes" = 1 ] && [ "$deletes" = 0 ]; then
	tell info
	stat -c "$name %f %s %y %u %U %g %G %n" -- "$path"
fi
tell ended 0
hold
