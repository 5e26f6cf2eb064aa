# Ends an execution ("kill"), and the script around it too ("end"), or sends the
# signals with these numbers to "all" of its processes or to the "groups" of the
# command and in its terminal's foreground.
whom=$1
shift
signals=$*
next
mark=$value
next
wrapper=$value
next
session=$value
next
group=$value
next
fifo=$value
found=
status=0
# Where the image has no setsid, the command itself is all that is known.
alone=
[ -n "$session" ] || alone=$group
exec 2>/dev/null
case $whom in
end)
	for place in $(grep -lszF -e "$mark" /proc/[0-9]*/cmdline); do
		place=${place%/cmdline}
		kill -KILL "${place#/proc/}"
	done
	[ -z "$wrapper" ] || kill -KILL "$wrapper"
	[ -z "$fifo" ] || rm -f -- "$fifo"
	sweep
	status=$?
	;;
kill)
	sweep
	status=$?
	;;
*)
	# The server must have heard from here before a signal is sent: an exec that
	# breaks earlier can be tried again, and a later one isn't.
	tell ready
	next
	members
	stat=
	while IFS= read -r line; do
		stat=$line
	done <"/proc/$wrapper/stat"
	set -- ${stat##*") "}
	front=${6:-0}
	[ "$session" != "$wrapper" ] || group=${3:-0}
	for process in $found; do
		stat=
		while IFS= read -r line; do
			stat=$line
		done <"/proc/$process/stat"
		set -- ${stat##*") "}
		case $whom.$3 in
		all.* | groups."$group" | groups."$front")
			for signal in $signals; do
				kill "-$signal" "$process"
			done
			;;
		esac
	done
	;;
esac
tell ended "$status"
hold
