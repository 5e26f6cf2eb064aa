package jobe

import (
	"net/http"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

// recipe returns that of a language as clients name it.
func (a *api) recipe(id string) (language.Recipe, bool) { return a.Languages.ByID(strings.ToLower(id)) }

// languages returns those that the caller can run, with their versions.
func (a *api) languages(r *http.Request) (any, error) {
	seen, err := a.environments(r.Context())
	if err != nil {
		return nil, err
	}
	list := [][2]string{}
	for _, recipe := range a.Languages.All() {
		if _, there := recipe.Environment(func(id runtime.EnvironmentID) bool { _, ok := seen[id]; return ok }); there {
			list = append(list, [2]string{recipe.ID, "Unknown"})
		}
	}
	return list, nil
}
