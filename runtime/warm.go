package runtime

import (
	"regexp"
	"slices"
)

// Warm is an interpreter that each runner loads with modules before it is IDLE. Executions of that
// interpreter start from it.
type Warm struct {
	Interpreter Interpreter `json:"interpreter"`
	Modules     []string    `json:"modules,omitempty"` // in load order; none twice
}

// Loaded describes the interpreter that a runner has loaded.
type Loaded struct {
	Version string `json:"version"` // of the interpreter: "3.11"
	Memory  int64  `json:"memory"`  // bytes not backed by a file, after loading
}

// An Interpreter is an interpreter that runners can load.
type Interpreter string

// The interpreters. InterpreterNone means none in requests; it is never stored.
const (
	InterpreterNone   Interpreter = "NONE"
	InterpreterPython Interpreter = "PYTHON"
)

// MaxWarmModules is how many modules an environment can name.
const MaxWarmModules = 64

const maxModuleBytes = 128

var moduleNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// validate returns INVALID_INPUT with the first invalid field.
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
			return Invalid("warm.modules", "must be module names of at most %d bytes, such as numpy or os.path, not %q", maxModuleBytes, name)
		}
		if slices.Contains(w.Modules[:i], name) {
			return Invalid("warm.modules", "must not name %s twice", name)
		}
	}
	if isolation != IsolationNamespaces || runtime != "" {
		return Invalid("warm", "needs isolation NAMESPACES without a runtime, on a single machine")
	}
	return nil
}

func (w *Warm) equal(other *Warm) bool {
	if w == nil || other == nil {
		return w == other
	}
	return w.Interpreter == other.Interpreter && slices.Equal(w.Modules, other.Modules)
}
