package jobe

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

// versionPatience is how long the list of languages waits for versions that are being determined.
// CodeRunner requests the list before each run.
const versionPatience = 10 * time.Second

// languages returns the languages that the caller can run, with their versions. It leaves out
// languages that their environment turned out not to have.
func (a *api) languages(_ http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := a.caller(r.Context()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), versionPatience)
	defer cancel()
	var (
		recipes []language.Recipe
		envs    []runtime.Environment
	)
	for _, recipe := range a.Languages.All() {
		env, there, err := a.Engine.Environments.First(r.Context(), recipe.Environments)
		if err != nil {
			return nil, err
		}
		if there {
			recipes, envs = append(recipes, recipe), append(envs, env)
		}
	}
	list := [][2]string{}
	type measured struct {
		versions map[string]string
		known    bool
	}
	// All languages together wait for at most versionPatience.
	all := atOnce(len(recipes), func(i int) (m measured) {
		if len(recipes[i].Version) > 0 {
			m.versions, m.known = a.Versions.Versions(ctx, envs[i])
		}
		return m
	})
	for i, recipe := range recipes {
		version, there := all[i].versions[recipe.ID]
		if all[i].known && !there {
			continue
		}
		list = append(list, [2]string{recipe.ID, cmp.Or(version, "Unknown")})
	}
	return list, nil
}

// atOnce returns the results of do(0) to do(n-1), which it calls concurrently.
func atOnce[R any](n int, do func(i int) R) []R {
	results := make([]R, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { results[i] = do(i) })
	}
	running.Wait()
	return results
}
