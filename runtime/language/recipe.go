package language

import (
	"path"
	"regexp"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// A Recipe says how programs in one language are built and run. It is a value: changing one changes
// no set. Its patterns are those that it had when it was added to a set.
type Recipe struct {
	ID         string
	Name       string   // for people
	Aliases    []string // other names for the id
	Extensions []string // of its source files, with the dot
	FileName   string   // of a source file without a name
	// FileNamePattern finds the name, without extension, that a source's text requires, such as
	// Java's public class; "": none. It is a regular expression with one group.
	FileNamePattern string
	Build           []string // template of the command that builds a program; empty: no build
	Run             []string // template of the command that runs a program
	Version         []string // command that prints the version; empty: none
	VersionPattern  string   // finds the version in Version's output; a regular expression with one group
	// Environments are the environments with the language, preferred one first.
	Environments []runtime.EnvironmentID
	Image        string // with the language, for a new environment
	Limits       Limits

	fileName, version *regexp.Regexp // compiled patterns, set when the recipe is added to a set; nil: none
}

// Limits are a language's needs beyond an environment's defaults. 0: the default is enough.
type Limits struct {
	MemoryMiB    int
	Processes    int
	WorkspaceMiB int
	Seconds      int // time that a program needs
}

// A Program fills the templates of a recipe.
type Program struct {
	File            string   // of the source, relative to the working directory
	Class           string   // {class}; "": the file's name without directory and extension
	BuildArgs       []string // for the compiler
	LinkArgs        []string // for the linker
	InterpreterArgs []string // for the interpreter
	Args            []string // for the program
}

// BuildCommand returns the command that builds a program; nil: no build.
func (r Recipe) BuildCommand(p Program) []string { return expand(r.Build, p) }

// RunCommand returns the command that runs a program after its build.
func (r Recipe) RunCommand(p Program) []string { return expand(r.Run, p) }

// SourceFile returns the file name that a source's text requires, or FileName.
func (r Recipe) SourceFile(source []byte) string {
	if r.fileName == nil {
		return r.FileName
	}
	if found := r.fileName.FindSubmatch(source); len(found) > 1 && len(found[1]) > 0 {
		return string(found[1]) + path.Ext(r.FileName)
	}
	return r.FileName
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

// compile compiles the patterns of a checked recipe.
func (r *Recipe) compile() {
	r.fileName, r.version = compiled(r.FileNamePattern), compiled(r.VersionPattern)
}

// compiled compiles a checked pattern; nil: there is none.
func compiled(pattern string) *regexp.Regexp {
	if pattern == "" {
		return nil
	}
	return regexp.MustCompile(pattern)
}

// expand fills a template. Inserted values aren't searched for placeholders.
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

// places matches the placeholders within an argument.
var places = regexp.MustCompile(`\{[A-Za-z]+\}`)

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
	"{directory}": func(p Program) string { return asArgument(path.Dir(p.File)) },
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
