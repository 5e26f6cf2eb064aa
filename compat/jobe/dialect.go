package jobe

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

// A dialect says how Jobe builds and runs a language where that differs from Rockpool's recipe. The
// zero value is for languages that Jobe doesn't have.
type dialect struct {
	build, run        []string // the templates, or nil for the recipe's
	compileArgs       []string // by default
	interpreterArgs   []string // by default
	memory            float64  // MB of address space by default; 0 is unlimited, whatever a client requests
	leastProcesses    float64
	warnings          bool                     // a successful build may print messages
	stderr            func(string) string      // filters the stderr that clients see; nil leaves all of it
	failsBeforeItRuns func(stderr string) bool // reports whether a failed interpreter has rejected the source
}

// dialects has the dialects by the id of a recipe.
var dialects = map[string]dialect{
	"c": {
		build: []string{"gcc", "{buildArgs}", "-o", "{file}.exe", "{file}", "{linkArgs}"}, run: compiled,
		compileArgs: []string{"-Wall", "-Werror", "-std=c99", "-x", "c"}, memory: 400,
	},
	"cpp": {
		build: []string{"g++", "{buildArgs}", "-o", "{file}.exe", "{file}", "{linkArgs}"}, run: compiled,
		compileArgs: []string{"-Wall", "-Werror"}, memory: 400,
	},
	"java": {
		run:             []string{"java", "{interpreterArgs}", "{class}", "{args}"},
		interpreterArgs: []string{"-Xrs", "-Xss8m", "-Xmx200m"}, leastProcesses: 256,
		stderr: func(text string) string { return strings.ReplaceAll(text, "\n\t", "\n        ") },
	},
	"nodejs":  {interpreterArgs: []string{"--use_strict"}},
	"octave":  {interpreterArgs: []string{"--norc", "--no-window-system", "--silent", "-H"}, stderr: octaveErrors},
	"pascal":  {build: []string{"fpc", "{buildArgs}", "-o{file}.exe", "{file}"}, run: compiled, compileArgs: []string{"-vew", "-Se"}, memory: 400, warnings: true},
	"php":     {build: []string{"php", "-l", "{file}"}, interpreterArgs: []string{"--no-php-ini"}},
	"python3": {interpreterArgs: []string{"-BE"}, failsBeforeItRuns: pythonSyntax},
}

// compiled is the template that runs a built program.
var compiled = []string{"./{file}.exe", "{interpreterArgs}", "{args}"}

// processes returns the limit of processes for a requested one: at least the language's minimum. 0
// means unlimited.
func (d dialect) processes(asked float64) float64 { return atLeast(asked, d.leastProcesses) }

// A job is a spec converted to commands.
type job struct {
	dialect  dialect
	fileName string
	build    []string // nil if nothing is built
	run      []string
	shown    string // the command line to show to people; empty for run itself
}

// dialect returns the dialect of a recipe. If an operator has changed the recipe's templates, it
// uses those.
func (a *api) dialect(recipe language.Recipe) dialect {
	d := dialects[recipe.ID]
	if own, _ := a.defaults.ByID(recipe.ID); !slices.Equal(own.Build, recipe.Build) || !slices.Equal(own.Run, recipe.Run) {
		d.build, d.run = nil, nil
	}
	return d
}

// newJob returns the commands of a spec in a language.
func newJob(s spec, recipe language.Recipe, d dialect) job {
	name := s.fileName
	if name == "prog.java" { // old clients send it without knowing the class
		name = ""
	}
	program := recipe.Program(name, []byte(s.source))
	switch {
	case name != "":
		program.File = name
	case program.Class == "":
		program.File = "prog" + path.Ext(recipe.FileName)
	}
	j := job{dialect: d, fileName: program.File}
	if d.build != nil {
		recipe.Build = d.build
	}
	if d.run != nil {
		recipe.Run = d.run
	}
	if program.Class == "" {
		program.Class, _, _ = strings.Cut(j.fileName, ".")
	}
	program.BuildArgs, program.LinkArgs, program.InterpreterArgs, program.Args = d.compileArgs, s.parameters.link, d.interpreterArgs, s.parameters.run
	// A client's arguments replace the defaults, also if it sends an empty list.
	if s.parameters.mainClass != "" {
		program.Class = s.parameters.mainClass
	}
	if s.parameters.compile != nil {
		program.BuildArgs = s.parameters.compile
	}
	if s.parameters.interpreter != nil {
		program.InterpreterArgs = s.parameters.interpreter
	}
	j.build, j.run = recipe.BuildCommand(program), recipe.RunCommand(program)
	if d.memory > 0 {
		// People see the command without the script that sets its limits.
		if line := runtime.WithArguments("", j.run); runtime.ValidateCommandLine(line) == nil {
			j.shown = line
		}
		memory := or(s.parameters.memory, d.memory)
		if slices.ContainsFunc(program.BuildArgs, func(arg string) bool { return strings.HasPrefix(arg, "-fsanitize=") }) {
			memory = 0 // sanitizers reserve terabytes of addresses
		}
		j.run = withLimits(j.run, memory, or(s.parameters.processes, defaultProcesses))
	}
	return j
}

// limits is a script that starts a command with two limits of the kernel. Shells have different
// options for the limit of processes. C libraries reserve as much address space for each thread as
// the stack may have, so with a limit of that the stack has the usual size.
const limits = `ulimit -v "$1" && { test "$1" = unlimited || ulimit -S -s 8192 || :; } && { ulimit -u "$2" || ulimit -p "$2"; } 2>/dev/null; shift 2; exec "$@"`

// withLimits returns a command with limits of address space and processes. Exceeding them fails
// inside the program, as in Jobe, whereas the runner's own limits would kill it.
func withLimits(command []string, megabytes, processes float64) []string {
	most := func(value float64) string {
		if value <= 0 {
			return "unlimited"
		}
		return strconv.FormatInt(clamp(value, 1, 1<<40), 10)
	}
	return append([]string{runtime.Shell, "-c", limits, "sh", most(megabytes * 1000), most(processes)}, command...)
}

// syntaxErrors matches the last line of Python's messages about a source that it rejects.
var syntaxErrors = regexp.MustCompile(`^(SyntaxError|IndentationError|TabError|ValueError: source code)\b`)

// pythonSyntax reports whether Python rejected the source: its message has no traceback then.
func pythonSyntax(stderr string) bool {
	lines := strings.Split(strings.TrimRight(stderr, "\n"), "\n")
	return syntaxErrors.MatchString(lines[len(lines)-1]) && (len(lines) == 1 || strings.HasPrefix(lines[0], `  File "`))
}

// octaveErrors removes messages that Octave prints at its end if the user has no home directory.
func octaveErrors(text string) string {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\r", ""), "\n \t"), "\n")
	for _, noise := range []string{"error: ignoring octave_execution_exception", "error: No such file or directory"} {
		if last := len(lines) - 1; last >= 0 && strings.HasPrefix(lines[last], noise) {
			lines = lines[:last]
		}
	}
	if text = strings.Join(lines, "\n"); text == "" {
		return ""
	}
	return text + "\n"
}
