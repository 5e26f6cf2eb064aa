# Reads what a command on a terminal prints to its stderr.
next
exec 2>/dev/null
tell started
exec cat <"$value"
