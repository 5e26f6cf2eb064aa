#compdef rockpool
# Completes rockpool's command lines in zsh: source <(rockpool completion zsh)
_rockpool() {
	local candidate description files='' nospace=()
	local -a plain=() shown=()
	while IFS=$'\t' read -r candidate description; do
		case $candidate in
		:files) files=1 ;;
		:nospace) nospace=(-S '') ;;
		*)
			plain+=("$candidate")
			shown+=("$candidate${description:+  -- $description}")
			;;
		esac
	done < <("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
	(( ${#plain} )) && compadd -Q -l -d shown $nospace -a plain
	if [[ $files ]]; then
		compset -P '*[=]'
		_files
	fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
	_rockpool "$@"
else
	compdef _rockpool rockpool
fi
