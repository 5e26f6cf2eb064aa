package runtime

import (
	"regexp"
	"slices"
)

// Warm is an interpreter that each runner loads, with modules, before it is IDLE. Executions of
// that interpreter start from it.
type Warm struct {
	Interpreter Interpreter `json:"interpreter"`
	Modules     []string    `json:"modules,omitempty"` // in the order in which they are loaded; none twice
}

// Loaded is what a runner has loaded.
type Loaded struct {
	Version string `json:"version"` // of the interpreter: "3.11"
	Memory  int64  `json:"memory"`  // bytes that it held then and no file backs
}

// An Interpreter is one that can be loaded.
type Interpreter string

// The interpreters. InterpreterNone stands for none in what callers ask for; it isn't stored.
const (
	InterpreterNone   Interpreter = "NONE"
	InterpreterPython Interpreter = "PYTHON"
)

// MaxWarmModules is how many modules an environment can name.
const MaxWarmModules = 64

// maxModuleBytes bounds the name of one.
const maxModuleBytes = 128

var moduleNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// validate returns INVALID_INPUT with the first field of an environment's that doesn't fit.
func (w *Warm) validate(isolation Isolation, runtime string) error {
	if w == nil {
		return nil
	}
	if w.Interpreter != InterpreterPython {
		return Invalid("warm.interpreter", "must be PYTHON or NONE")
	}
	if len(w.Modules) > MaxWarmModules {
		return Invalid("warm.modules", "must be at most %d modules, not %d", MaxWarmModules, len(w.Modules))
	}
	for i, name := range w.Modules {
		if len(name) > maxModuleBytes || !moduleNames.MatchString(name) {
			return Invalid("warm.modules", "must be names of modules such as numpy or os.path, of at most %d bytes; %q isn't", maxModuleBytes, name)
		}
		if slices.Contains(w.Modules[:i], name) {
			return Invalid("warm.modules", "must not name %s twice", name)
		}
	}
	if isolation != IsolationNamespaces || runtime != "" {
		return Invalid("warm", "needs the isolation NAMESPACES on a single machine, and no runtime")
	}
	return nil
}

func (w *Warm) equal(other *Warm) bool {
	if w == nil || other == nil {
		return w == other
	}
	return w.Interpreter == other.Interpreter && slices.Equal(w.Modules, other.Modules)
}
