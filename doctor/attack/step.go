package attack

import (
	"cmp"
	"errors"
	"strconv"

	"github.com/rockpool/rockpool/client"
)

type kind int

const (
	runs    kind = iota // a command in a runner, to its end
	starts              // a command, until it prints something; it keeps running
	uploads             // a file into a runner
	reads               // a file out of a runner
	lists               // a directory of a runner, recursively
	finds               // a text in the files of a runner's directory, recursively
	nexts               // releases the runner and claims another one
	posts               // a body to the API, unchanged, even if it isn't valid JSON
	images              // an environment from an image, and a runner of it
	garbage             // bytes to the agent's socket, without the server
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
	layer    []entry // of an image
	root     bool
	other    bool // in another runner that exists at the same time
	terminal bool
	limits   *client.LimitsInput
	seconds  int // time limit
	repeat   int
}

// An entry of a layer is a symbolic link to Link, a hard link to Hard, or an empty file.
type entry struct{ Name, Link, Hard string }

const proberPath = "/workspace/.prober"

// defaultSeconds is the time limit of commands that should end on their own.
const defaultSeconds = 20

func shell(script string) Step { return Step{kind: runs, script: script, seconds: defaultSeconds} }

// isWarm begins a program in the loaded interpreter. It prints whether it is one.
const isWarm = "import sys\nprint('warm', 'decimal' in sys.modules)\n"

// UnmarshalYAML reads a step: one action, and how it is done.
func (s *Step) UnmarshalYAML(unmarshal func(any) error) (err error) {
	var in struct {
		Shell, Probe, Call, Ask, Python, Cold, Upload, Read, List, Find, Heard, Post string

		Command                       []string
		Image                         []entry
		Garble                        string // with Go's escapes
		Next                          bool
		Text                          string // of an upload
		Zeros                         int    // MiB of zeros to upload, instead of text
		Root, Other, Behind, Terminal bool
		Within, Times                 int
		Limits                        *client.LimitsInput
	}
	if err := unmarshal(&in); err != nil {
		return err
	}
	*s = Step{
		command: in.Command, script: in.Shell, prober: in.Probe, layer: in.Image, root: in.Root, other: in.Other,
		terminal: in.Terminal, limits: in.Limits, seconds: cmp.Or(in.Within, defaultSeconds), repeat: in.Times,
	}
	switch {
	case in.Shell != "", in.Probe != "", in.Command != nil:
	case in.Call != "":
		s.prober = "call " + in.Call
	case in.Ask != "": // each address may stay silent for 10 seconds
		s.prober, s.seconds = "ask "+in.Ask, cmp.Or(in.Within, 30)
	case in.Python != "":
		s.command = []string{"python3", "-c", isWarm + in.Python}
	case in.Cold != "":
		s.command = []string{"python3", "-B", "-c", in.Cold}
	case in.Upload != "":
		s.kind, s.path, s.text = uploads, in.Upload, in.Text+string(make([]byte, in.Zeros<<20))
	case in.Read != "":
		s.kind, s.path = reads, in.Read
	case in.List != "":
		s.kind, s.path = lists, in.List
	case in.Find != "":
		s.kind, s.path, s.text = finds, "/workspace", in.Find
	case in.Heard != "":
		s.kind, s.text = hears, in.Heard
	case in.Post != "":
		s.kind, s.text = posts, in.Post
	case in.Garble != "":
		s.kind = garbage
		s.text, err = strconv.Unquote(`"` + in.Garble + `"`)
	case in.Image != nil:
		s.kind = images
	case in.Next:
		s.kind = nexts
	default:
		return errors.New("a step needs an action")
	}
	if in.Behind {
		s.kind = starts
	}
	return err
}
