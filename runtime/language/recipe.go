package language

import (
	"path"
	"regexp"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// A Recipe says how programs in one language are built and run. It is a value: a change of one changes no set. Its
// patterns are those that it had when it became one of a set.
type Recipe struct {
	ID         string
	Name       string   // for people
	Aliases    []string // other names for the id
	Extensions []string // of its source files, with the dot
	FileName   string   // of a source file that has no name
	// FileNamePattern finds the name that a source must have in its text, without the extension, as Java's public
	// class; "": none must. A regular expression with one group.
	FileNamePattern string
	Build           []string // the template of the command that builds a program; empty: nothing is built
	Run             []string // the template of the command that runs one
	Version         []string // the command that prints the version; empty: none does
	VersionPattern  string   // finds the version in what Version prints. A regular expression with one group
	// Environments are those that have the language, the preferred one first.
	Environments []runtime.EnvironmentID
	Image        string // one that has the language, for a new environment
	Limits       Limits

	fileName, version *regexp.Regexp // the patterns, compiled when the recipe became one of a set; nil: none
}

// Limits are what a language needs beyond an environment's defaults. 0: the default is enough.
type Limits struct {
	MemoryMiB    int
	Processes    int
	WorkspaceMiB int
	Seconds      int // that a program needs
}

// A Program is what a recipe's templates are filled with.
type Program struct {
	File            string   // of the source, relative to the working directory
	Class           string   // {class}; "": the file's name without directory and extension
	BuildArgs       []string // for the compiler
	LinkArgs        []string // for the linker
	InterpreterArgs []string // for the interpreter
	Args            []string // for the program
}

// BuildCommand returns the command that builds a program; nil: nothing is built.
func (r Recipe) BuildCommand(p Program) []string { return expand(r.Build, p) }

// RunCommand returns the command that runs a program, after it was built.
func (r Recipe) RunCommand(p Program) []string { return expand(r.Run, p) }

// SourceFile returns the name that a source must have, or else FileName.
func (r Recipe) SourceFile(source []byte) string {
	if r.fileName == nil {
		return r.FileName
	}
	if found := r.fileName.FindSubmatch(source); len(found) > 1 && len(found[1]) > 0 {
		return string(found[1]) + path.Ext(r.FileName)
	}
	return r.FileName
}

// ParseVersion returns the version in what the version command printed, on stdout and on stderr; "": it isn't there.
func (r Recipe) ParseVersion(printed string) string {
	if r.version == nil {
		return ""
	}
	if found := r.version.FindStringSubmatch(printed); len(found) > 1 {
		return found[1]
	}
	return ""
}

// compile compiles the patterns of a recipe that was checked.
func (r *Recipe) compile() {
	r.fileName, r.version = compiled(r.FileNamePattern), compiled(r.VersionPattern)
}

func compiled(pattern string) *regexp.Regexp {
	if pattern == "" {
		return nil
	}
	return regexp.MustCompile(pattern)
}

// expand fills a template. What a place is filled with is never searched for places.
func expand(template []string, p Program) []string {
	var command []string
	for _, argument := range template {
		if list := lists[argument]; list != nil {
			command = append(command, list(p)...)
			continue
		}
		command = append(command, places.ReplaceAllStringFunc(argument, func(place string) string {
			if value := values[place]; value != nil {
				return value(p)
			}
			return place
		}))
	}
	return command
}

var places = regexp.MustCompile(`\{[A-Za-z]+\}`)

// lists are the places that become any number of arguments.
var lists = map[string]func(Program) []string{
	"{buildArgs}":       func(p Program) []string { return p.BuildArgs },
	"{linkArgs}":        func(p Program) []string { return p.LinkArgs },
	"{interpreterArgs}": func(p Program) []string { return p.InterpreterArgs },
	"{args}":            func(p Program) []string { return p.Args },
}

// values are the places that become one argument, or a part of one.
var values = map[string]func(Program) string{
	"{file}":      func(p Program) string { return asArgument(p.File) },
	"{stem}":      func(p Program) string { return asArgument(strings.TrimSuffix(p.File, path.Ext(p.File))) },
	"{directory}": func(p Program) string { return asArgument(path.Dir(p.File)) },
	"{program}":   func(p Program) string { return asCommand(p.File + ".out") },
	"{class}":     Program.class,
}

func (p Program) class() string {
	if p.Class != "" {
		return p.Class
	}
	name := path.Base(p.File)
	return strings.TrimSuffix(name, path.Ext(name))
}

// asArgument returns a path that no program takes for an option, or for a file of options.
func asArgument(file string) string {
	if strings.HasPrefix(file, "-") || strings.HasPrefix(file, "@") {
		return "./" + file
	}
	return file
}

// asCommand returns a path that is never looked for on the search path.
func asCommand(file string) string {
	if path.IsAbs(file) || strings.HasPrefix(file, "./") || strings.HasPrefix(file, "../") {
		return file
	}
	return "./" + file
}
