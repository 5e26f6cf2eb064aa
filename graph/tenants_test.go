package graph

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/clustertest"
	"github.com/rockpool/rockpool/runtime/pool"
)

// newBedOfTenants returns a bed that needs tokens. Runners of environments whose ids begin with
// "low" don't start, so these have an alert.
func newBedOfTenants(t *testing.T) bed {
	t.Helper()
	fake := clustertest.NewFake()
	b := newBedWith(t, lowFake{fake}, fake, bedOptions{Token: testToken, Alert: pool.AlertRule{Threshold: 1, Timeout: time.Millisecond}})
	return b
}

type lowFake struct{ *clustertest.Fake }

func (f lowFake) Start(ctx context.Context, id runtime.RunnerID, env runtime.Environment, p runtime.Priority) error {
	if strings.HasPrefix(string(env.ID), "low") {
		return errors.New("it doesn't start")
	}
	return f.Fake.Start(ctx, id, env, p)
}
