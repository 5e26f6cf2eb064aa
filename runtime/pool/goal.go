package pool

import (
	"cmp"

	"github.com/rockpool/rockpool/runtime"
)

type goal struct {
	env        runtime.Environment
	making     runtime.Environment // revision that runners are made from now; see resolve
	image      runtime.ImageStatus // of env's image
	awaiting   bool                // no runner can be made until the image is available
	deleted    bool
	endClaimed bool
}

// set changes the environment and revokes a delete, unless env is older.
func (g *goal) set(env runtime.Environment) {
	if g.deleted || env.Revision >= g.env.Revision {
		g.env, g.deleted, g.endClaimed = env, false, false
	}
}

// delete makes an empty pool the goal. It stays so until set is called.
func (g *goal) delete(endClaimed bool) {
	g.deleted = true
	g.endClaimed = g.endClaimed || endClaimed
}

// resolve determines the revision that runners are made from now. While the cluster doesn't have the
// environment's image, that is the previous revision, with the present pool size and tenant. Without
// a previous revision no runner can be made.
func (g *goal) resolve(options Options) {
	g.making, g.image, g.awaiting = g.env, options.image(g.env), false
	g.making.Previous = nil
	if !options.pulls(g.env) || g.image.State == runtime.ImageReady {
		return
	}
	if g.env.Previous == nil {
		g.awaiting = true
		return
	}
	g.making = *g.env.Previous
	g.making.PoolSize, g.making.Tenant = g.env.PoolSize, g.env.Tenant
}

func (g *goal) spec() Spec {
	return Spec{Size: g.env.PoolSize, Revision: g.making.RunnerRevision, Deleted: g.deleted, EndClaimed: g.endClaimed}
}

func (g *goal) current(env runtime.Environment) bool {
	return env.Revision >= g.making.RunnerRevision && !g.foreign(env)
}

// foreign reports whether runners made from env belong to another tenant: the environment was that
// tenant's, or was deleted and created again.
func (g *goal) foreign(env runtime.Environment) bool { return env.Tenant != g.making.Tenant }

func (g *goal) errDeleted() error {
	return runtime.Errorf(runtime.CodeEnvironmentNotFound, "environment %s was deleted", g.env.ID)
}

func (g *goal) reasonAwaiting() string {
	return "the environment's image is not available yet: " + cmp.Or(g.image.Reason, "it is being pulled")
}

// pulls reports whether the cluster pulls an environment's image itself.
func (o Options) pulls(env runtime.Environment) bool { return env.Pin.Digest != "" && o.Image != nil }

func (o Options) image(env runtime.Environment) runtime.ImageStatus {
	if !o.pulls(env) {
		return runtime.ImageStatus{}
	}
	return o.Image(env.Pin)
}
