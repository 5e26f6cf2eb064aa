# Tells what files are ("stat"), reads one ("read"), or lists a directory ("list",
# "tree"). What stat prints begins with a word that no name holds.
what=$1
next
path=$value
next
word=$value
next
offset=$value
exec 2>/dev/null
format="$word %f %s %y %u %U %g %G %n"
refuse() {
	tell refused "$1"
	hold
	exit
}
[ -e "$path" ] || {
	[ ! -L "$path" ] || refuse denied
	above=${path%/*}
	while [ -n "$above" ] && [ ! -e "$above" ]; do
		above=${above%/*}
	done
	[ -d "${above:-/}" ] || refuse wrongType
	[ -x "${above:-/}" ] || refuse denied
	refuse notFound
}
case $what in
stat)
	stat -L -c "$format" -- "$path" || refuse denied
	;;
read)
	[ ! -d "$path" ] || refuse directory
	[ -f "$path" ] || refuse irregular
	[ -r "$path" ] || refuse denied
	stat -L -c "$format" -- "$path" || refuse denied
	tell content
	if [ "$offset" -gt 0 ]; then
		tail -c "+$((offset + 1))" -- "$path"
	else
		cat -- "$path"
	fi
	;;
*)
	[ -d "$path" ] || refuse wrongType
	cd -P -- "$path" || refuse denied
	[ -r . ] || refuse denied
	depth=1
	[ "$what" = list ] || depth=130
	find . -xdev -mindepth 1 -maxdepth "$depth" -exec stat -c "$format" -- {} +
	printf '\0'
	find . -xdev -mindepth 1 -maxdepth "$depth" -type l -exec /bin/sh -c '
		for link; do
			printf "%s\0" "$link"
			readlink -n -- "$link"
			printf "\0"
		done' sh {} +
	;;
esac
tell ended 0
hold
