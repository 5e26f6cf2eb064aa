package language

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// A Recipe says how programs in one language are built and run. It is a value: changing one changes
// no set. Its pattern is the one that it had when it was added to a set.
type Recipe struct {
	ID             string
	Name           string   // for people
	Aliases        []string // other names for the id
	Extensions     []string // of its source files, with the dot
	FileName       string   // of a source file without a name
	Build          []string // template of the command that builds a program; empty means no build
	Run            []string // template of the command that runs a program
	Version        []string // command that prints the version; empty means none
	VersionPattern string   // finds the version in Version's output; a regular expression with one group
	// Environments are the environments with the language, preferred one first.
	Environments []runtime.EnvironmentID
	Image        string   // with the language, for a new environment
	Debian       []string // packages of Debian with the language
	Cache        Cache
	Limits       Limits

	version *regexp.Regexp // compiled VersionPattern, set when the recipe is added to a set; nil means none
}

// A Cache is files that a language's tools would otherwise make in every runner. It is made once for each image.
type Cache struct {
	Make      []string // command that makes it, with Variables set; empty means the language needs none
	Variables []string // NAME=value: with them the tools use the cache; {cache} is its directory
}

// VariablesAt returns the cache's variables for a directory.
func (c Cache) VariablesAt(directory string) []string {
	all := slices.Clone(c.Variables)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "{cache}", directory)
	}
	return all
}

// Limits are a language's needs beyond an environment's defaults. 0 means the default is enough.
type Limits struct {
	MemoryMiB    int
	Processes    int
	WorkspaceMiB int
	Seconds      int // time that a program needs
}

// A Program fills the templates of a recipe.
type Program struct {
	File            string   // of the source, relative to the working directory
	Class           string   // {class}; "" means the file's name without directory and extension
	Directory       string   // {directory}; "" means the file's
	BuildArgs       []string // for the compiler
	LinkArgs        []string // for the linker
	InterpreterArgs []string // for the interpreter
	Args            []string // for the program
}

// BuildCommand returns the command that builds a program; nil means no build.
func (r Recipe) BuildCommand(p Program) []string { return expand(r.Build, p) }

// RunCommand returns the command that runs a program after its build.
func (r Recipe) RunCommand(p Program) []string { return expand(r.Run, p) }

// Program returns the program of a source that its caller named file; "" means FileName. The source's text may
// require that File has another name in the same directory.
func (r Recipe) Program(file string, source []byte) Program {
	file = cmp.Or(file, r.FileName)
	if path.Ext(r.FileName) == ".java" {
		return javaProgram(file, source)
	}
	return Program{File: file}
}

// ParseVersion returns the version in the output of the version command, on stdout or stderr; "":
// not found.
func (r Recipe) ParseVersion(printed string) string {
	if r.version == nil {
		return ""
	}
	if found := r.version.FindStringSubmatch(printed); len(found) > 1 {
		return found[1]
	}
	return ""
}

func (r *Recipe) compile() {
	if r.VersionPattern != "" {
		r.version = regexp.MustCompile(r.VersionPattern)
	}
}

// expand fills a template. Inserted values aren't searched for placeholders.
func expand(template []string, p Program) []string {
	var command []string
	for _, argument := range template {
		if list := lists[argument]; list != nil {
			command = append(command, list(p)...)
			continue
		}
		command = append(command, placeholders.ReplaceAllStringFunc(argument, func(placeholder string) string {
			if value := values[placeholder]; value != nil {
				return value(p)
			}
			return placeholder
		}))
	}
	return command
}

// placeholders matches the placeholders within an argument.
var placeholders = regexp.MustCompile(`\{[A-Za-z]+\}`)

// lists are the placeholders that become any number of arguments.
var lists = map[string]func(Program) []string{
	"{buildArgs}":       func(p Program) []string { return p.BuildArgs },
	"{linkArgs}":        func(p Program) []string { return p.LinkArgs },
	"{interpreterArgs}": func(p Program) []string { return p.InterpreterArgs },
	"{args}":            func(p Program) []string { return p.Args },
}

// values are the placeholders that become one argument, or a part of one.
var values = map[string]func(Program) string{
	"{file}":      func(p Program) string { return asArgument(p.File) },
	"{stem}":      func(p Program) string { return asArgument(strings.TrimSuffix(p.File, path.Ext(p.File))) },
	"{directory}": func(p Program) string { return asArgument(cmp.Or(p.Directory, path.Dir(p.File))) },
	"{program}":   func(p Program) string { return asCommand(p.File + ".out") },
	"{class}":     Program.class,
}

// class returns the name of the program's class; by default it is the file's name without its
// extension.
func (p Program) class() string {
	if p.Class != "" {
		return p.Class
	}
	name := path.Base(p.File)
	return strings.TrimSuffix(name, path.Ext(name))
}

// asArgument returns a path that no program mistakes for an option or for a file of options.
func asArgument(file string) string {
	if strings.HasPrefix(file, "-") || strings.HasPrefix(file, "@") {
		return "./" + file
	}
	return file
}

// asCommand returns a path that isn't looked up in the search path.
func asCommand(file string) string {
	if path.IsAbs(file) || strings.HasPrefix(file, "./") || strings.HasPrefix(file, "../") {
		return file
	}
	return "./" + file
}
