#!/usr/bin/env python3
"""Runs a Python program on Rockpool with the standard library alone, and follows
it by server-sent events. It reconnects when the connection breaks:
    printf 'Ada\\nGrace\\n' | python3 examples/python/run.py examples/hello.py
"""
import base64, http.client, json, os, sys, time, urllib.request

URL = os.environ.get("ROCKPOOL_SERVER", "http://127.0.0.1:8080") + "/graphql"
CLAIM = "mutation($input: ClaimRunnerInput!) { claimRunner(input: $input) { runner { id } } }"
WRITE = "mutation($input: UpdateFilesInput!) { updateFiles(input: $input) { written } }"
START = "mutation($input: StartExecutionInput!) { startExecution(input: $input) { execution { id } } }"
FEED = "mutation($input: WriteStdinInput!) { writeStdin(input: $input) { offset } }"
FOLLOW = """subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) {
  cursor ... on ExecutionOutput { stream base64 } ... on ExecutionFinished { execution { outcome exitCode } } } }"""
RELEASE = "mutation($id: ID!) { releaseRunner(id: $id) { released } }"

def post(query, variables, accept="application/json"):
    body = json.dumps({"query": query, "variables": variables}).encode()
    headers = {"Content-Type": "application/json", "Accept": accept}
    # The server sends a comment every 12 s if there are no events.
    return urllib.request.urlopen(urllib.request.Request(URL, body, headers), timeout=30)

def data(answer):
    for error in answer.get("errors", []):  # retryable errors are treated as a broken connection
        kind = ConnectionError if error["extensions"]["retryable"] else RuntimeError
        raise kind(f"{error['extensions']['code']}: {error['message']}")
    return answer["data"]

def ask(query, **variables):
    return data(json.load(post(query, variables)))

def follow(execution, cursor=None):
    while True:
        try:
            for line in post(FOLLOW, {"id": execution, "after": cursor}, "text/event-stream"):
                if line.startswith(b"data: {") and line.endswith(b"\n"):
                    yield (event := data(json.loads(line[6:]))["executionEvents"])
                    cursor = event["cursor"]  # the next connection resumes after it
                    if "execution" in event: return
        except (OSError, http.client.HTTPException): pass
        time.sleep(0.5)

runner = ask(CLAIM, input={"environmentId": "python", "waitFor": 20, "inactivityTimeout": 60})["claimRunner"]["runner"]["id"]
try:
    program = base64.b64encode(open(sys.argv[1], "rb").read()).decode()
    ask(WRITE, input={"runnerId": runner, "write": [{"path": "main.py", "base64": program}]})
    started = ask(START, input={"runnerId": runner, "command": ["python3", "main.py"], "stdin": True})["startExecution"]
    try:
        stdin = base64.b64encode(sys.stdin.buffer.read()).decode()
        ask(FEED, input={"executionId": started["execution"]["id"], "base64": stdin, "close": True})
    except RuntimeError as error:  # the program may end without reading its input
        if "CONFLICT" not in str(error): raise
    for event in follow(started["execution"]["id"]):
        if "stream" in event:
            os.write(1 if event["stream"] == "STDOUT" else 2, base64.b64decode(event["base64"]))
finally:
    ask(RELEASE, id=runner)
print(f"{event['execution']['outcome']}, exit code {event['execution']['exitCode']}", file=sys.stderr)
sys.exit(event["execution"]["exitCode"] if event["execution"]["outcome"] == "EXITED" else 1)
