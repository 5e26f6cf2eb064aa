package attack

import "github.com/rockpool/rockpool/client"

// A kind is what a step does.
type kind int

const (
	runs    kind = iota // a command in a runner, to its end
	starts              // a command, until it printed something; it goes on
	uploads             // a file into a runner
	reads               // a file out of a runner
	lists               // a directory of a runner, with all below
	finds               // a text in the files of a runner's directory, and below
	nexts               // releases the runner and claims another one
	posts               // a body to the API, as it is
	images              // an environment from an image, and a runner of it
	garbage             // bytes to the agent's socket
	hears               // whether a datagram came to anybody
)

// A Step is one thing that an attack does. What came of it is a line or more of
// what is seen.
type Step struct {
	kind     kind
	command  []string
	script   string
	path     string
	text     string
	archive  func(secret string) []byte // of an image
	root     bool
	other    bool // in another runner, which is there at the same time
	terminal bool
	limits   *client.LimitsInput
	seconds  int // its time limit
	repeat   int
}

// proberPath is where the prober is in each runner.
const proberPath = "/workspace/.prober"

// defaultSeconds is how long a command may run that should end by itself.
const defaultSeconds = 20

func shell(script string) Step { return Step{kind: runs, script: script, seconds: defaultSeconds} }

func probe(args ...string) Step { return command(append([]string{proberPath}, args...)...) }

func command(argv ...string) Step { return Step{kind: runs, command: argv, seconds: defaultSeconds} }

// calls has the prober make calls.
func calls(names ...string) Step { return probe(append([]string{"call"}, names...)...) }

func upload(path, text string) Step { return Step{kind: uploads, path: path, text: text} }

func read(path string) Step { return Step{kind: reads, path: path} }

func list(path string) Step { return Step{kind: lists, path: path} }

// find searches the workspace.
func find(text string) Step { return Step{kind: finds, path: "/workspace", text: text} }

func next() Step { return Step{kind: nexts} }

func post(body string) Step { return Step{kind: posts, text: body} }

func image(archive func(secret string) []byte) Step { return Step{kind: images, archive: archive} }

func heard(text string) Step { return Step{kind: hears, text: text} }

func garble(text string) Step { return Step{kind: garbage, text: text} }

// asRoot has a command be root of the runner.
func (s Step) asRoot() Step {
	s.root = true
	return s
}

// inOther has a step be in another runner.
func (s Step) inOther() Step {
	s.other = true
	return s
}

// behind leaves a command running.
func (s Step) behind() Step {
	s.kind = starts
	return s
}

func (s Step) onTerminal() Step {
	s.terminal = true
	return s
}

func (s Step) limited(to client.LimitsInput) Step {
	s.limits = &to
	return s
}

func (s Step) within(seconds int) Step {
	s.seconds = seconds
	return s
}

// times does it so often, or until it succeeds, and sees the last.
func (s Step) times(n int) Step {
	s.repeat = n
	return s
}
