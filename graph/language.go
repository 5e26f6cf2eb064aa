package graph

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

func (r query) Languages(ctx context.Context) ([]language.Recipe, error) {
	if _, err := r.guard.Allowed(ctx, "languages"); err != nil {
		return nil, err
	}
	return r.languages.All(), nil
}

func (r recipe) EnvironmentID(ctx context.Context, of *language.Recipe) (*string, error) {
	env, err := r.environment(ctx, of)
	return orNull(string(env.ID)), err
}

// versionPatience is how long a caller waits for a version that is being measured.
const versionPatience = 3 * time.Second

func (r recipe) Version(ctx context.Context, of *language.Recipe) (*string, error) {
	env, err := r.environment(ctx, of)
	if err != nil || env.ID == "" || len(of.Version) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	found, _ := r.measured.Versions(ctx, env)
	return orNull(found[of.ID]), nil
}

// environment returns the preferred one that the caller sees; the zero environment: there is none.
func (r recipe) environment(ctx context.Context, of *language.Recipe) (runtime.Environment, error) {
	for _, id := range of.Environments {
		if env, ok, err := r.guard.Environment(ctx, id); ok || err != nil {
			return env, err
		}
	}
	return runtime.Environment{}, nil
}
