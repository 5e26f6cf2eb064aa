#!/bin/sh
# Runs a program as an AI agent's client does: it opens an MCP session, calls one tool, and ends the session.
#
#     ROCKPOOL_TOKEN=... examples/mcp/run.sh python3 'print(6 * 7)'
#
# ROCKPOOL_SERVER names the server, which needs --compat mcp.
set -eu

endpoint=${ROCKPOOL_SERVER:-http://127.0.0.1:8080}/mcp
language=$1
source=$2

send() {
	curl --silent --show-error --fail-with-body "$endpoint" \
		--header "Authorization: Bearer ${ROCKPOOL_TOKEN:-}" --header 'Content-Type: application/json' \
		--header 'Accept: application/json, text/event-stream' "$@"
}

headers=$(send --dump-header - --output /dev/null --data '{"jsonrpc": "2.0", "id": 1, "method": "initialize",
	"params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "run.sh", "version": "1"}}}')
session=$(printf '%s\n' "$headers" | tr -d '\r' | sed -n 's/^mcp-session-id: //Ip')
trap 'send --header "Mcp-Session-Id: $session" --request DELETE' EXIT

send --header "Mcp-Session-Id: $session" --data '{"jsonrpc": "2.0", "method": "notifications/initialized"}'
call=$(jq --null-input --arg language "$language" --arg source "$source" '{jsonrpc: "2.0", id: 2, method: "tools/call",
	params: {name: "run_program", arguments: {language: $language, source: $source}}}')
# The response is a stream of server-sent events. This event has the result.
answer=$(send --header "Mcp-Session-Id: $session" --data "$call")
printf '%s\n' "$answer" | sed -n 's/^data: //p' | jq '.result.structuredContent | {outcome, exitCode, stdout, stderr}'
