package attack

import "github.com/rockpool/rockpool/client"

// A kind is the action of a step.
type kind int

const (
	runs    kind = iota // a command in a runner, to its end
	starts              // a command, until it prints something; it keeps running
	uploads             // a file into a runner
	reads               // a file out of a runner
	lists               // a directory of a runner, recursively
	finds               // a text in the files of a runner's directory, recursively
	nexts               // releases the runner and claims another one
	posts               // a body to the API, unchanged
	images              // an environment from an image, and a runner of it
	garbage             // bytes to the agent's socket
	hears               // whether a datagram arrived anywhere
)

// A Step is one action of an attack. Its result adds lines to the attack's output.
type Step struct {
	kind     kind
	command  []string
	prober   string // instead of command, until the attack is resolved: the prober's command line
	script   string
	path     string
	text     string
	archive  func(secret string) []byte // returns an image
	root     bool
	other    bool // in another runner that exists at the same time
	terminal bool
	limits   *client.LimitsInput
	seconds  int // time limit
	repeat   int
}

// proberPath is the prober's path in each runner.
const proberPath = "/workspace/.prober"

// defaultSeconds is the time limit of commands that should end on their own.
const defaultSeconds = 20

// shell returns a step that runs a shell script in the runner.
func shell(script string) Step { return Step{kind: runs, script: script, seconds: defaultSeconds} }

// command returns a step that runs a program without a shell.
func command(argv ...string) Step { return Step{kind: runs, command: argv, seconds: defaultSeconds} }

// python returns a step that runs a program in the loaded interpreter, and prints whether that worked.
func python(program string) Step {
	return command("python3", "-c", "import sys\nprint('warm', 'decimal' in sys.modules)\n"+program)
}

// upload returns a step that uploads a file through the API.
func upload(path, text string) Step { return Step{kind: uploads, path: path, text: text} }

// read returns a step that downloads a file through the API.
func read(path string) Step { return Step{kind: reads, path: path} }

// list returns a step that lists a directory through the API.
func list(path string) Step { return Step{kind: lists, path: path} }

// post returns a step that sends a body to the API, even if it isn't valid JSON.
func post(body string) Step { return Step{kind: posts, text: body} }

// garble returns a step that sends bytes to the agent's socket, without the server.
func garble(text string) Step { return Step{kind: garbage, text: text} }

// asRoot makes a command run as root of the runner.
func (s Step) asRoot() Step {
	s.root = true
	return s
}
