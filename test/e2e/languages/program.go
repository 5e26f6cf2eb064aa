// Package languages runs ordinary programs in many languages, as students, judges and agents write
// them, and checks what comes. The programs are data, in the directory programs; its README explains
// the fields.
package languages

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/goccy/go-yaml"
)

//go:embed programs/*.yaml
var programs embed.FS

// A Program is an ordinary program and what must come when it runs.
type Program struct {
	Language string `yaml:"-"` // of its file
	Name     string
	Core     bool     // make test runs it
	Slow     bool     // the virtual machine of make test-vm, which is ten times slower, doesn't run it
	Hello    bool     // it prints a line, for the table of times
	Needs    []string // programs, or paths of files, that the platform must have
	// Files are written first. Run is a file and its arguments, for rockpool run; it is built and run
	// by its recipe. Shell is a command line instead.
	Files     map[string]string
	Run       []string
	Shell     string
	Stdin     *string
	TimeLimit int `yaml:"timeLimit"` // seconds; 0 means the environment's
	Variables map[string]string
	Resources Resources
	Limits    map[string]any // of the execution; only with Shell
	Want      Want
	// Pending is the reason why it fails today; "" means it must pass. A program that passes although it is
	// pending fails the suite, so that the mark is removed.
	Pending string
	// On has what differs on platforms, by their names.
	On map[string]Difference
}

// A Difference is what comes on one platform instead of [Program.Want], which must not come there.
type Difference struct {
	Reason string // a row of a table in docs/guides/machine.md
	Want   *Want  // what must come there; nil means anything else
}

// Resources are the limits of the program's runner. 0 means those of the language's recipe, else the
// environment's defaults.
type Resources struct {
	MemoryMiB    int `yaml:"memoryMiB"`
	Processes    int
	WorkspaceMiB int `yaml:"workspaceMiB"`
	Megahertz    int `yaml:"cpuMHz"`
}

// Want is what must come. Patterns are regular expressions that match a part of the text.
type Want struct {
	Outcome       string  // "" means EXITED
	Exit          int     // of a program that exits
	Signal        string  // of one that a signal ends
	Stdout        *string // exactly
	StdoutMatches string  `yaml:"stdoutMatches"`
	Stderr        *string // exactly
	StderrMatches string  `yaml:"stderrMatches"`
	Message       string  // matches the execution's message
	Hint          string  // matches the execution's hint
	Peak          *Range  `yaml:"peakMiB"`
	Processes     *Range
	CPU           *Range `yaml:"cpuMs"`
}

// A Range has the lowest and the highest right value.
type Range [2]float64

// A file has the programs of a language.
type file struct {
	Language  string
	Needs     []string // of all programs
	Resources Resources
	Programs  []Program
}

// Read returns all programs, by language.
func Read() (all []Program, err error) {
	entries, err := programs.ReadDir("programs")
	for _, e := range entries {
		text, wrong := programs.ReadFile(path.Join("programs", e.Name()))
		if wrong == nil {
			var f file
			wrong = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&f)
			for _, p := range f.Programs {
				all = append(all, f.complete(p))
			}
		}
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", e.Name(), wrong))
		}
	}
	seen := map[string]bool{}
	for _, p := range all {
		err = errors.Join(err, p.check(seen[p.ID()]))
		seen[p.ID()] = true
	}
	return all, err
}

// complete returns the program with its file's defaults.
func (f file) complete(p Program) Program {
	p.Language, p.Needs = f.Language, slices.Concat(f.Needs, p.Needs)
	for _, d := range []struct{ to, from *int }{
		{&p.Resources.MemoryMiB, &f.Resources.MemoryMiB}, {&p.Resources.Processes, &f.Resources.Processes},
		{&p.Resources.WorkspaceMiB, &f.Resources.WorkspaceMiB}, {&p.Resources.Megahertz, &f.Resources.Megahertz},
	} {
		if *d.to == 0 {
			*d.to = *d.from
		}
	}
	return p
}

// ID is the program's name in the suite.
func (p Program) ID() string { return p.Language + "/" + p.Name }

// check returns what is wrong with the program's row.
func (p Program) check(twice bool) error {
	wrong := func(text string) error { return fmt.Errorf("%s: %s", p.ID(), text) }
	switch {
	case twice:
		return wrong("the name occurs twice")
	case (len(p.Run) == 0) == (p.Shell == ""):
		return wrong("exactly one of run and shell is needed")
	case len(p.Run) > 0 && p.Files[p.Run[0]] == "":
		return wrong("files lacks " + p.Run[0])
	case len(p.Limits) > 0 && (p.Shell == "" || p.Stdin != nil):
		return wrong("limits need shell, and no stdin")
	}
	wants := []Want{p.Want}
	for platform, differs := range p.On {
		if !slices.Contains(platforms, platform) {
			return wrong("on names no platform: " + platform)
		}
		if differs.Want != nil {
			wants = append(wants, *differs.Want)
		}
	}
	for _, want := range wants {
		for _, pattern := range []string{want.StdoutMatches, want.StderrMatches, want.Message, want.Hint} {
			if _, err := regexp.Compile(pattern); err != nil {
				return wrong(err.Error())
			}
		}
	}
	return nil
}

// platforms are the names of all platforms.
var platforms = []string{"host", "image", "gvisor", "nomad", "vm"}
