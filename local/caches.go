package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// runCaches makes the caches of languages when environments need them, until ctx ends.
func (c *Cluster) runCaches(ctx context.Context) {
	for ctx.Err() == nil {
		_ = c.MakeCaches(ctx, func(string) {}) // Status reports it
		select {
		case <-c.cached:
		case <-ctx.Done():
		}
	}
}

// MakeCaches makes the missing caches of the languages whose environments use this machine's programs. It calls begin
// with a language's name if its cache is missing. Status reports its errors, too.
func (c *Cluster) MakeCaches(ctx context.Context, begin func(language string)) (failed error) {
	if c.config.Languages == nil {
		return nil
	}
	environments := c.allEnvironments()
	for _, r := range c.config.Languages.All() {
		if len(r.Cache.Make) == 0 || !slices.ContainsFunc(environments, func(env runtime.Environment) bool {
			return env.Image == runtime.DefaultImage && slices.Contains(r.Environments, env.ID)
		}) {
			continue
		}
		subject := "cache of " + r.ID
		made, err := c.host.MakeCache(ctx, r, func() { begin(r.Name) })
		switch {
		case ctx.Err() != nil:
		case err != nil:
			err = fmt.Errorf("the cache of %s can't be made, so its programs take longer: %w", r.Name, err)
			c.problems.Report(subject, err.Error())
		default:
			c.problems.Resolve(subject)
		}
		if made {
			c.config.Logger.Info("made the cache of a language", zap.String("language", r.ID))
		}
		failed = errors.Join(failed, err)
	}
	return failed
}
