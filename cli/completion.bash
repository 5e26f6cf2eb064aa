# Completes rockpool's command lines in bash: source <(rockpool completion bash)
_rockpool() {
	# Bash has cut the words at "=" and ":" too: put them together again.
	local words=() i word glue='' cut=''
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		case $word in
		= | : | =: | :=) words[-1]+=$word glue=1 ;;
		*) if [[ $glue ]]; then words[-1]+=$word glue=''; else words+=("$word"); fi ;;
		esac
	done
	[[ ${words[-1]} == *[=:]* ]] && cut=${words[-1]%"${words[-1]##*[=:]}"}
	local candidate description
	COMPREPLY=()
	while IFS=$'\t' read -r candidate description; do
		case $candidate in
		:files)
			compopt -o filenames 2>/dev/null
			while IFS= read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -f -- "${words[-1]#"$cut"}")
			;;
		:nospace) compopt -o nospace 2>/dev/null ;;
		*) COMPREPLY+=("${candidate#"$cut"}") ;;
		esac
	done < <("${COMP_WORDS[0]}" __complete -- "${words[@]}" 2>/dev/null)
}
complete -o nosort -F _rockpool rockpool 2>/dev/null || complete -F _rockpool rockpool
