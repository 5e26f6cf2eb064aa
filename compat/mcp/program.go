package mcp

import (
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
	requests "github.com/rockpool/rockpool/runtime/request"
)

// Limits of arguments, which the tools' schemas mention.
const (
	maxTimeLimit = 3600 // seconds
	workspace    = "/workspace/"
	maxWait      = 35 // seconds that a claim waits for a runner, less than answerTime
)

// A program is what run_program and execute run.
type program struct {
	Source    string            `json:"source,omitempty" jsonschema:"the program's source code in the language; it is written to /workspace as main.py, main.c and so on, and replaces a file of that name"`
	Command   []string          `json:"command,omitempty" jsonschema:"instead of source: the command to run, as a list of arguments"`
	Shell     string            `json:"shell,omitempty" jsonschema:"instead of source: a command line for sh"`
	Args      []string          `json:"args,omitempty" jsonschema:"arguments for the program; with source"`
	Files     []file            `json:"files,omitempty" jsonschema:"files to write before the program starts, relative to /workspace"`
	Stdin     *string           `json:"stdin,omitempty" jsonschema:"the program's standard input; default: empty"`
	Variables map[string]string `json:"variables,omitempty" jsonschema:"environment variables"`
	TimeLimit *int              `json:"timeLimit,omitempty" jsonschema:"seconds, 1 to 3600, for the program without its build; default: the environment's"`

	BuildTimeLimit *int `json:"buildTimeLimit,omitempty" jsonschema:"seconds, 1 to 3600, for the build of a language that is compiled; default: the environment's"`
}

// boundProgram sets the ranges of time limits in a schema.
func boundProgram(s *jsonschema.Schema) {
	between(s, "timeLimit", 1, maxTimeLimit)
	between(s, "buildTimeLimit", 1, maxTimeLimit)
}

// A file is a file to write.
type file struct {
	Path       string  `json:"path" jsonschema:"relative to /workspace, or absolute; missing directories are created"`
	Text       *string `json:"text,omitempty" jsonschema:"its content as text"`
	Base64     *string `json:"base64,omitempty" jsonschema:"its content as base64, instead of text"`
	Executable bool    `json:"executable,omitempty" jsonschema:"whether the file can be run as a command"`
}

// write converts files for the engine.
func write(files []file) ([]runtime.FileWrite, error) {
	all := make([]runtime.FileWrite, 0, len(files))
	for i, f := range files {
		w := runtime.FileWrite{Path: f.Path}
		switch {
		case (f.Text == nil) == (f.Base64 == nil):
			return nil, runtime.Invalid(fmt.Sprintf("files.%d", i), "must have either text or base64")
		case f.Text != nil:
			w.Data = []byte(*f.Text)
		default:
			var err error
			if w.Data, err = base64.StdEncoding.DecodeString(*f.Base64); err != nil {
				return nil, runtime.Invalid(fmt.Sprintf("files.%d.base64", i), "must be base64 with padding: %s", err)
			}
		}
		if f.Executable || strings.HasPrefix(string(w.Data[:min(2, len(w.Data))]), "#!") {
			w.Mode = 0o755
		}
		all = append(all, w)
	}
	return all, nil
}

// A plan is the input that a program needs to run.
type plan struct {
	files []runtime.FileWrite
	build []string // nil if nothing is built
	limit *int     // seconds for the build; nil for the environment's
	start requests.Start
	stdin *string
}

// plan returns the plan of a program in a language; a nil language is unknown.
func (p program) plan(in *language.Recipe) (plan, error) {
	made := plan{stdin: p.Stdin, limit: p.BuildTimeLimit, start: requests.Start{TimeLimit: p.TimeLimit, Stdin: p.Stdin != nil}}
	for field, limit := range map[string]*int{"timeLimit": p.TimeLimit, "buildTimeLimit": p.BuildTimeLimit} {
		if limit == nil {
			continue
		}
		if err := runtime.Between(field, int64(*limit), 1, maxTimeLimit, "seconds"); err != nil {
			return made, err
		}
	}
	for name, value := range p.Variables {
		made.start.Variables = append(made.start.Variables, runtime.Variable{Name: name, Value: value})
	}
	// A map has no order.
	slices.SortFunc(made.start.Variables, func(a, b runtime.Variable) int { return strings.Compare(a.Name, b.Name) })
	var err error
	if made.files, err = write(p.Files); err != nil {
		return made, err
	}
	given := 0
	for _, is := range []bool{p.Source != "", len(p.Command) > 0, p.Shell != ""} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return made, runtime.Invalid("source", "use exactly one of source, command and shell")
	case len(p.Command) > 0:
		made.start.Command = slices.Concat(p.Command, p.Args)
	case p.Shell != "" && len(p.Args) > 0:
		return made, runtime.Invalid("args", "can't be combined with shell: write the arguments into the command line")
	case p.Shell != "":
		made.start.Shell = &p.Shell
	case in == nil:
		return made, runtime.Invalid("language", "is required for source: list_environments lists the languages")
	default:
		filled := in.Program("", []byte(p.Source))
		filled.Args = p.Args
		source := runtime.FileWrite{Path: filled.File, Data: []byte(p.Source)}
		// The source would replace such a file.
		for i, f := range p.Files {
			if strings.TrimPrefix(path.Clean(f.Path), workspace) == source.Path {
				return made, runtime.Invalid(fmt.Sprintf("files.%d.path", i), "must be different: the source is written to %s", source.Path)
			}
		}
		made.files = append(made.files, source)
		made.build, made.start.Command = in.BuildCommand(filled), in.RunCommand(filled)
	}
	return made, nil
}

// named replaces the index of a variable in an error by its name, since agents send an object.
func named(err error, variables []runtime.Variable) error {
	name, refused := compat.NamedVariable(err, variables)
	if refused == nil {
		return err
	}
	renamed := *refused
	renamed.Field = "variables." + name
	return &renamed
}

// A choice is the environment and the language of a program.
type choice struct {
	Language    string `json:"language,omitempty" jsonschema:"a programming language, for example python3; list_environments lists all"`
	Environment string `json:"environment,omitempty" jsonschema:"the environment to run in; default: one that has the language"`
}

// choose returns the environment of a choice, and the recipe of its language; nil if the language is
// unknown.
func (c *call) choose(at choice) (runtime.EnvironmentID, *language.Recipe, error) {
	there, err := c.api.services.Engine.Environments.List(c.ctx)
	if err != nil {
		return "", nil, err
	}
	environment := runtime.EnvironmentID(at.Environment)
	if at.Language == "" {
		if environment == "" && len(there) == 1 {
			environment = there[0].ID
		}
		if environment == "" {
			return "", nil, runtime.Invalid("environment", "a language or an environment is required; the environments are %s", names(there))
		}
		if recipe, known := c.api.services.Languages.ByEnvironment(environment); known {
			return environment, &recipe, nil
		}
		return environment, nil, nil
	}
	recipe, known := c.api.services.Languages.ByID(at.Language)
	if !known {
		return "", nil, runtime.Invalid("language", "must be one that list_environments lists, not %q; or use environment with command or shell", at.Language)
	}
	if environment == "" {
		env, found, err := c.api.services.Engine.Environments.First(c.ctx, recipe.Environments)
		if err != nil {
			return "", nil, err
		}
		if !found {
			return "", nil, runtime.Invalid("language", "no environment here has %s: choose one of %s", recipe.Name, names(there))
		}
		environment = env.ID
	}
	return environment, &recipe, nil
}

func names(all []runtime.Environment) string {
	var names []string
	for _, env := range all {
		names = append(names, string(env.ID))
	}
	return strings.Join(names, ", ")
}
