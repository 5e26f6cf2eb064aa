// Package language says how programs in each language are built and run: by which commands, with
// which source name, and in which environments. Commands are lists of arguments and never pass
// through a shell.
//
// The recipes are data, in languages.yaml. An operator's file changes and extends them.
package language

import (
	"bytes"
	_ "embed"
	"path"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

//go:embed languages.yaml
var builtIn []byte

// A Set contains the recipes of a server. It is immutable, and safe for concurrent use.
type Set struct {
	recipes []Recipe
}

// Default returns the set of the built-in languages.
func Default() *Set {
	set, err := new(Set).extend("languages.yaml", builtIn)
	if err != nil {
		panic(err) // impossible: a test reads it
	}
	return set
}

// Of returns a set of checked recipes.
func Of(recipes ...Recipe) *Set {
	set := &Set{slices.Clone(recipes)}
	for i := range set.recipes {
		set.recipes[i].compile()
	}
	return set
}

// All returns all recipes: the built-in ones first, in their order, and then an operator's.
func (s *Set) All() []Recipe { return slices.Clone(s.recipes) }

// ByID returns the recipe with this id or alias.
func (s *Set) ByID(id string) (Recipe, bool) {
	return s.first(func(r Recipe) bool { return r.ID == id || slices.Contains(r.Aliases, id) })
}

// ByFile returns the recipe for a source with this name or path, by its extension.
func (s *Set) ByFile(name string) (Recipe, bool) {
	extension := path.Ext(name)
	return s.first(func(r Recipe) bool { return slices.Contains(r.Extensions, extension) })
}

// ByScript returns the recipe for a source that begins with a #! line, by the interpreter in that
// line, and the line's arguments for the interpreter. It ignores recipes with a build.
func (s *Set) ByScript(source []byte) (r Recipe, interpreterArgs []string, found bool) {
	line, script := strings.CutPrefix(FirstLine(source), "#!")
	words := strings.Fields(line)
	if len(words) > 0 && path.Base(words[0]) == "env" {
		words = words[1:]
		// Skip options and variables, as in env -S A=b python3 -u.
		for len(words) > 0 && (strings.HasPrefix(words[0], "-") || strings.Contains(words[0], "=")) {
			words = words[1:]
		}
	}
	if !script || len(words) == 0 {
		return Recipe{}, nil, false
	}
	name := path.Base(words[0])
	major, _, _ := strings.Cut(name, ".") // "python3" of "python3.12"
	for _, is := range []func(Recipe) bool{
		func(r Recipe) bool { return path.Base(r.Run[0]) == name },
		func(r Recipe) bool { return path.Base(r.Run[0]) == major },
		func(r Recipe) bool { return r.ID == name || slices.Contains(r.Aliases, name) },
	} {
		if r, found = s.first(func(r Recipe) bool { return len(r.Build) == 0 && len(r.Run) > 0 && is(r) }); found {
			return r, words[1:], true
		}
	}
	return Recipe{}, nil, false
}

// FirstLine returns a source's first line.
func FirstLine(source []byte) string {
	line, _, _ := bytes.Cut(source, []byte("\n"))
	return string(line)
}

// ByEnvironment returns the recipe that lists this environment first among its preferences.
func (s *Set) ByEnvironment(id runtime.EnvironmentID) (best Recipe, found bool) {
	for _, r := range s.recipes {
		at := slices.Index(r.Environments, id)
		if at >= 0 && (!found || at < slices.Index(best.Environments, id)) {
			best, found = r, true
		}
	}
	return best, found
}

func (s *Set) first(is func(Recipe) bool) (Recipe, bool) {
	if i := slices.IndexFunc(s.recipes, is); i >= 0 {
		return s.recipes[i], true
	}
	return Recipe{}, false
}
