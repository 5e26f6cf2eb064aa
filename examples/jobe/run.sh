#!/usr/bin/env bash
# Runs a Python program as Moodle's CodeRunner does, with curl and jq. The program reads a support file and stdin:
#
#   rockpool serve --compat jobe
#   echo Ada | examples/jobe/run.sh
#
# JOBE_API_KEY is a token with the role CLIENT, if the server needs one.
set -euo pipefail
url=${ROCKPOOL_SERVER:-http://127.0.0.1:8080}/jobe/index.php/restapi

# ask METHOD PATH < BODY prints the response, and its status as the last line
ask() {
  curl -sS -X "$1" "$url/$2" -H 'Content-Type: application/json' -H "X-API-KEY: ${JOBE_API_KEY:-}" --data-binary @- -w '\n%{http_code}'
}

greeting='Good morning, '
id=$(printf %s "$greeting" | md5sum | cut -d' ' -f1)
program='print(open("greeting.txt").read() + input())'

run() {
  jq -n --arg program "$program" --arg id "$id" --arg input "$input" '{run_spec: {
    language_id: "python3", sourcecode: $program, input: $input,
    file_list: [[$id, "greeting.txt"]], parameters: {cputime: 5, memorylimit: 200}}}' | ask POST runs
}

input=$(cat)
answer=$(run)
if [ "${answer##*$'\n'}" = 404 ]; then # the server doesn't have the file
  printf %s "$greeting" | base64 -w0 | jq -R '{file_contents: .}' | ask PUT "files/$id" >/dev/null
  answer=$(run)
fi
body=${answer%$'\n'*}
[ "${answer##*$'\n'}" = 200 ] || { echo "$body" >&2 && exit 1; }
jq -r '"outcome \(.outcome)", (.cmpinfo, .stdout, .stderr | select(. != ""))' <<<"$body"
