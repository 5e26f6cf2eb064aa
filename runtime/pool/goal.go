package pool

import (
	"cmp"

	"github.com/rockpool/rockpool/runtime"
)

// A goal is what the pool is to be.
type goal struct {
	env        runtime.Environment
	making     runtime.Environment // what runners are made from now; see look
	image      runtime.ImageStatus // of env's image
	awaiting   bool                // nothing can be made before that is there
	deleted    bool
	endClaimed bool
}

// set changes the environment and takes back a delete, unless env is older.
func (g *goal) set(env runtime.Environment) {
	if g.deleted || env.Revision >= g.env.Revision {
		g.env, g.deleted, g.endClaimed = env, false, false
	}
}

// delete makes an empty pool the goal.
func (g *goal) delete(endClaimed bool) {
	g.deleted = true
	g.endClaimed = g.endClaimed || endClaimed
}

// look finds out what runners are made from now. As long as the cluster hasn't
// the environment's image, that is the revision before, as many as are wanted
// now and for the tenant that owns it now; and nothing, where there is none.
func (g *goal) look(options Options) {
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

// spec returns what Plan has to know of it.
func (g *goal) spec() Spec {
	return Spec{Size: g.env.PoolSize, Revision: g.making.RunnerRevision, Deleted: g.deleted, EndClaimed: g.endClaimed}
}

// current reports whether runners made from env are as they are made now.
func (g *goal) current(env runtime.Environment) bool {
	return env.Revision >= g.making.RunnerRevision && !g.foreign(env)
}

// foreign reports whether runners made from env are another tenant's. The environment was
// another one's, or was deleted and created anew.
func (g *goal) foreign(env runtime.Environment) bool { return env.Tenant != g.making.Tenant }

// errDeleted is what a claim of a deleted environment's runner gets.
func (g *goal) errDeleted() error {
	return runtime.Errorf(runtime.CodeEnvironmentNotFound, "environment %s was deleted", g.env.ID)
}

// reasonAwaiting is why runners are unavailable meanwhile.
func (g *goal) reasonAwaiting() string {
	return "the environment's image isn't here: " + cmp.Or(g.image.Reason, "it is being pulled")
}

// pulls reports whether the cluster gets an environment's image itself.
func (o Options) pulls(env runtime.Environment) bool { return env.Pin.Digest != "" && o.Image != nil }

// image returns how far the cluster is with it.
func (o Options) image(env runtime.Environment) runtime.ImageStatus {
	if !o.pulls(env) {
		return runtime.ImageStatus{}
	}
	return o.Image(env.Pin)
}
