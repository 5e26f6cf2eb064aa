# Runs a command: with "pipes", or on the "terminal" that this is on. The mark of
# its processes comes second.
mode=$1
mark=$2
next
dir=$value
next
paths=$value
next
input=$value
next
isolate=$value
next
openfiles=$value
next
blocks=$value
next
fifo=$value
next
size=$value
next
name=$value
next
count=$value
set --
while [ "$count" -gt 0 ]; do
	next
	set -- "$@" "$value"
	count=$((count - 1))
done
found=
alone=
wrapper=$$
exec 3>&1
if [ "$mode" = terminal ]; then
	trap : HUP INT QUIT TERM TSTP TTIN TTOU USR1 USR2 ALRM PIPE
	exec 2>/dev/null
	stty $size iutf8 || stty $size
	if [ -n "$fifo" ] && mkfifo -m 600 "$fifo" && [ -p "$fifo" ]; then
		# Open both ways, so that nobody waits for a reader, and what nobody has
		# read yet stays.
		exec 4<>"$fifo"
	else
		fifo=
		exec 4>&1
	fi
else
	exec 4>&2 2>/dev/null
fi
# leave ends this script. A late kill or signal is for all processes of the session,
# so it can end rm, too, before that has removed the FIFO.
leave() {
	hold
	trap '' HUP INT QUIT TERM USR1 USR2 ALRM PIPE
	tries=0
	while [ -p "$fifo" ] && [ "$tries" -lt 100 ]; do
		rm -f -- "$fifo"
		tries=$((tries + 1))
	done
	exit 0
}
refuse() {
	tell refused "$@"
	leave
}
# look finds the command as execvp does.
look() {
	case $name in
	*/*)
		[ -e "$name" ] || refuse notFound argv
		[ ! -d "$name" ] || refuse wrongType argv
		[ -x "$name" ] || refuse denied argv
		return
		;;
	esac
	why=notFound
	set -f
	IFS=:
	for place in $paths; do
		if [ -f "${place:-.}/$name" ]; then
			why=denied
			[ ! -x "${place:-.}/$name" ] || why=
		fi
		[ -n "$why" ] || break
	done
	unset IFS
	set +f
	[ -z "$why" ] || refuse "$why" argv
}
[ -e "$dir" ] || refuse notFound dir
[ -d "$dir" ] || refuse wrongType dir
cd -P -- "$dir" || refuse denied dir
look
# The server must have heard from here before the command may begin: an exec that
# breaks earlier can be tried again.
tell ready
next
# start becomes the command. It tells its number to descriptor 5.
start() {
	read -r pid rest </proc/self/stat
	echo "$pid" >&5
	[ -z "$openfiles" ] || ulimit -n "$openfiles" || refuse invalid limits
	[ -z "$blocks" ] || ulimit -f "$blocks" || refuse invalid limits
	tell started "$pid" "$$" ${fifo:+apart}
	[ -n "$input" ] || exec </dev/null
	exec 2>&4 3>&- 4>&- 5>&-
	exec $isolate env -i -- "$mark" "$@"
}
if [ "$mode" = terminal ]; then
	(start "$@" 5>/dev/null)
	status=$?
	session=$wrapper
else
	result=$(
		(start "$@" 5>&1 >&3)
		echo $?
	)
	status=${result##*"$nl"}
	session=${isolate:+${result%%"$nl"*}}
fi
if [ "$mode" = terminal ]; then
	members
	left=$found
	found=
else
	left=$(grep -lszF -e "$mark" /proc/[0-9]*/environ)
	[ -n "$left" ] || [ -z "$session" ] || ! kill -0 "-$session" || left=$session
fi
if [ -n "$left" ]; then
	# What it left behind may print for another moment.
	sleep 0.1 || sleep 1
	sweep
fi
tell ended "$status"
tell ended "$status" >&4
leave
