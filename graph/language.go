package graph

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime/language"
)

func (r query) Languages(ctx context.Context) ([]language.Recipe, error) {
	if _, err := r.engine.Callers.Allowed(ctx, "languages"); err != nil {
		return nil, err
	}
	return r.languages.All(), nil
}

// EnvironmentID returns the first of the language's environments that exists for the caller; null
// if none does.
func (r recipe) EnvironmentID(ctx context.Context, of *language.Recipe) (*string, error) {
	env, _, err := r.engine.Environments.First(ctx, of.Environments)
	return orNull(string(env.ID)), err
}

// versionPatience is how long a caller waits for a version that is being measured.
const versionPatience = 3 * time.Second

// Version returns null if the version is unknown, or isn't known within versionPatience.
func (r recipe) Version(ctx context.Context, of *language.Recipe) (*string, error) {
	env, there, err := r.engine.Environments.First(ctx, of.Environments)
	if err != nil || !there || len(of.Version) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	found, _ := r.measured.Versions(ctx, env)
	return orNull(found[of.ID]), nil
}
