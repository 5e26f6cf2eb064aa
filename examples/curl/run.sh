#!/usr/bin/env bash
# Runs a Python program on Rockpool with curl and jq, and follows it by
# server-sent events. It reconnects when the connection breaks:
#
#   printf 'Ada\nGrace\n' | examples/curl/run.sh examples/hello.py
set -euo pipefail
url=${ROCKPOOL_SERVER:-http://127.0.0.1:8080}/graphql

# data prints the data of a response. An error ends the script.
data() { jq 'if .errors then error(.errors[0] | "\(.extensions.code): \(.message)") else .data end'; }

# ask QUERY < VARIABLES
ask() { jq --arg query "$1" '{$query, variables: .}' | curl -sS "$url" -H 'Content-Type: application/json' --data-binary @- | data; }

runner=$(ask 'mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }' \
  <<<'{"in": {"environmentId": "python", "waitFor": 20, "inactivityTimeout": 60}}' | jq -r .claimRunner.runner.id)
trap 'ask "mutation(\$id: ID!) { releaseRunner(id: \$id) { released } }" <<<"{\"id\": \"$runner\"}" >/dev/null' EXIT

operations=$(jq -n --arg id "$runner" '{variables: {$id, file: null}, # as in the GraphQL multipart request spec
  query: "mutation($id: ID!, $file: Upload!) { uploadFile(runnerId: $id, path: \"main.py\", file: $file) { file { size } } }"}')
curl -sS "$url" -H 'GraphQL-Require-Preflight: 1' \
  -F operations="$operations" -F map='{"0": ["variables.file"]}' -F 0=@"$1" | data >/dev/null

execution=$(jq -n --arg id "$runner" '{in: {runnerId: $id, command: ["python3", "main.py"], stdin: true}}' |
  ask 'mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }' | jq -r .startExecution.execution.id)
fed=$(base64 -w0 | jq -Rs --arg id "$execution" '{in: {executionId: $id, base64: ., close: true}}' |
  ask 'mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }' 2>&1) ||
  [[ $fed = *CONFLICT* ]] || { echo "$fed" >&2 && exit 1; } # the program may end without reading its input

follow='subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) { cursor
  ... on ExecutionOutput { stream base64 } ... on ExecutionFinished { execution { outcome exitCode } } } }'
after=null outcome=
until [ "$outcome" ]; do # once for each connection
  while IFS=$'\t' read -r cursor what value; do
    case $what in
    STDOUT) base64 -d <<<"$value" ;;
    STDERR) base64 -d <<<"$value" >&2 ;;
    error) echo "$value" >&2 && exit 1 ;;
    ?*) outcome=$what code=$value ;;
    esac
    after=\"$cursor\" # the next connection continues there
  done < <(jq -n --arg query "$follow" --arg id "$execution" --argjson after "$after" '{$query, variables: {$id, $after}}' |
    # The server sends a comment every 12 s if there are no events.
    curl -sN "$url" -H 'Content-Type: application/json' -H 'Accept: text/event-stream' --speed-limit 1 --speed-time 30 --data-binary @- |
    jq --unbuffered -Rr 'select(startswith("data: {")) | ltrimstr("data: ") | fromjson? |
      if .data then .data.executionEvents | [.cursor, (.stream // .execution.outcome), (.base64 // .execution.exitCode)]
      else .errors[0] | select(.extensions.retryable | not) | ["-", "error", .message] end | @tsv')
  [ "$outcome" ] || sleep 0.5
done
echo "$outcome, exit code ${code:=1}" >&2
exit "$code"
