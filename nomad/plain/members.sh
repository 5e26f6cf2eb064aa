# members sets found to the living processes of an execution: those of its
# session, those that have its mark in their environment, the one that is known
# alone, and the children of all. The wrapper and this shell aren't among them.
members() {
	before=$found
	found=
	marked=$(grep -lszF -e "$mark" /proc/[0-9]*/environ)
	for place in /proc/[0-9]*; do
		process=${place#/proc/}
		case $process in
		"$$" | "$wrapper") continue ;;
		esac
		# The name of a process, which comes first, may hold anything.
		stat=
		while IFS= read -r line; do
			stat=$line
		done <"$place/stat"
		set -- ${stat##*") "}
		case $1 in
		'' | Z | X) continue ;;
		esac
		case $4.$process in
		"$session".* | *."$alone") ;;
		*)
			case $marked in
			*"$place/environ"*) ;;
			*)
				case "$before $found " in
				*" $2 "*) ;;
				*) continue ;;
				esac
				;;
			esac
			;;
		esac
		found="$found $process"
	done
}
# sweep kills members until there is none. First all are stopped, until there
# is no new one: else some fork while others die.
sweep() {
	rounds=0
	members
	while [ -n "$found" ]; do
		stopped=
		while [ "$found" != "$stopped" ] && [ "$rounds" -lt 1000 ]; do
			rounds=$((rounds + 1))
			kill -STOP $found
			stopped=$found
			members
		done
		kill -KILL $stopped $found
		[ "$rounds" -lt 1000 ] || return 1
		[ "$rounds" -lt 20 ] || sleep 0.05
		rounds=$((rounds + 1))
		found=
		members
	done
}
