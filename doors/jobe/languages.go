package jobe

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime/language"
)

// versionPatience is how long the list of languages waits for versions that are being measured: CodeRunner asks for it
// before each run.
const versionPatience = 10 * time.Second

// recipe returns that of a language as clients name it.
func (a *api) recipe(id string) (language.Recipe, bool) { return a.Languages.ByID(strings.ToLower(id)) }

// languages returns those that the caller can run, with their versions. A language that its environment turned out
// not to have is left out.
func (a *api) languages(_ http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := a.caller(r.Context()); err != nil {
		return nil, err
	}
	seen, err := a.environments(r.Context())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), versionPatience)
	defer cancel()
	list := [][2]string{}
	for _, recipe := range a.Languages.All() {
		env, there := seen.of(recipe)
		if !there {
			continue
		}
		version := ""
		if len(recipe.Version) > 0 {
			found, known := a.Versions.Versions(ctx, env)
			if version = found[recipe.ID]; known && version == "" {
				continue
			}
		}
		list = append(list, [2]string{recipe.ID, cmp.Or(version, "Unknown")})
	}
	return list, nil
}
