package attack

import "strings"

// start returns a GraphQL request that starts a command in the runner; argv is JSON.
func start(argv, more string) string {
	return `{"query": "mutation($c: [String!]) { startExecution(input: {runnerId: \"{runner}\", command: $c` + more + `}) { execution { id } } }", "variables": {"c": ` + argv + `}}`
}

// interfaces returns the attacks on the API, on the agent's protocol, and on their parsers.
func interfaces() []Attack {
	refused := "^=> refused (INVALID_INPUT|LIMIT_EXCEEDED) .*\nlives\n=> EXITED 0"
	bodies := func(name, tries, body string) Attack {
		return Attack{Name: name, Class: Interface, Anywhere: true, Gentle: true, Defence: Inputs, Tries: tries, Steps: []Step{post(body), shell("echo lives")}, Held: refused}
	}
	return []Attack{
		bodies("an argument of 1 MB", "to make the server start a command that no kernel accepts", start(`["echo", "`+strings.Repeat("x", 1<<20)+`"]`, "")),
		bodies("a hundred thousand arguments", "to make the server start a command with too many arguments", start(`["echo"`+strings.Repeat(`, "x"`, 100_000)+`]`, "")),
		bodies("NUL in an argument", "to cut an argument after it was checked", start(`["echo", "a\u0000b"]`, "")),
		bodies("NUL in the program name", "to start another program than the checked one", start(`["/bin/true\u0000x"]`, "")),
		bodies("invalid UTF-8", "to send invalid text", start("[\"echo\", \"\xff\xfe\"]", "")),
		bodies("half a character", "to send a surrogate without its other half", `{"query": "{ version \ud800 }`),
		bodies("no program", "to start nothing", start(`[""]`, "")),
		bodies("NUL in a variable", "to cut a variable after it was checked", start(`["env"]`, `, variables: [{name: \"A\", value: \"a\\u0000b\"}]`)),
		bodies("a newline in a variable name", "to smuggle a second variable into a name", start(`["env"]`, `, variables: [{name: \"A=B\\nLD_PRELOAD\", value: \"x\"}]`)),
		bodies("NUL in a path", "to cut a path after it was checked", `{"query": "{ runner(id: \"{runner}\") { file(path: \"a\\u0000b\") { size } } }"}`),
		bodies("a long working directory", "to make the server use a path that no kernel accepts", start(`["true"]`, `, workingDirectory: \"`+strings.Repeat("x/", 4000)+`\"`)),
		{
			Name: "a negative limit", Class: Interface, Anywhere: true, Defence: Inputs, Tries: "to make a limit overflow",
			Steps: []Step{post(start(`["true"]`, `, timeLimit: -1`)), post(start(`["true"]`, `, limits: {outputBytes: 9223372036854775807}`)), shell("echo lives")},
			Held:  "^=> refused INVALID_INPUT .*\n=> refused INVALID_INPUT .*\nlives\n",
		},
		{
			Name: "shell characters in arguments", Class: Interface, Anywhere: true, Defence: Inputs, Tries: "to make a shell execute an argument",
			Steps: []Step{command("echo", "$(touch /tmp/done)", "`touch /tmp/done`", "; touch /tmp/done", "\ntouch /tmp/done\n"), shell("test -e /tmp/done && echo executed; echo tried")},
			Held:  "tried\n=> EXITED 0", Never: "^executed",
		},
		{
			Name: "shell characters in paths", Class: Interface, Anywhere: true, Defence: Inputs, Tries: "to make a shell execute a path",
			Steps: []Step{upload("$(touch /tmp/done);`touch /tmp/done`\n", "x"), list("/workspace"), read("$(touch /tmp/done)"), shell("test -e /tmp/done && echo executed; echo tried")},
			Held:  "tried\n=> EXITED 0", Never: "^executed",
		},
		{
			Name: "garbage at the agent's socket", Class: Interface, Anywhere: true, Defence: Frames, Tries: "to exhaust the agent's memory or crash it",
			Steps: []Step{
				garble(strings.Repeat("\x00\xff\x7fGARBAGE", 4000)),
				garble("\x00\x00\x00\x00"), garble("\xff\xff\xff\xff\x01"), garble("\x7f\xff\xff\xff\x00" + strings.Repeat("{", 1<<20)),
				garble("\x00\x00\x00\x09\x01{\"start\":"), garble("\x00\x0f\xff\xff\x01" + strings.Repeat("[", 1<<20-2)),
				shell("echo lives"),
			},
			Held: "^(=> sent\n){6}lives\n=> EXITED 0",
		},
		{
			Name: "protocol text in output", Class: Interface, Anywhere: true, Defence: Frames, Tries: "to make output look like protocol messages, or break its readers",
			Steps: []Step{shell(`printf '\377\376\000\033]0;x\007\033[2J{"data":null}\n\nevent: complete\ndata: x\n\n'; echo; echo end`)},
			Held:  "^end\n=> EXITED 0",
		},
		{
			Name: "paths as ids", Class: Interface, Anywhere: true, Defence: Inputs, Tries: "to use paths as ids of runners and environments",
			Steps: []Step{
				post(`{"query": "mutation { startExecution(input: {runnerId: \"../{runner}\", command: [\"true\"]}) { execution { id } } }"}`),
				post(`{"query": "mutation { startExecution(input: {runnerId: \"/{runner}\", command: [\"true\"]}) { execution { id } } }"}`),
				post(`{"query": "mutation { putEnvironment(input: {id: \"../../x\"}) { created } }"}`),
			},
			Held: "^=> refused \\w+ .*\n=> refused \\w+ .*\n=> refused INVALID_INPUT .*\n",
		},
	}
}
