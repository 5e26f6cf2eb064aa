package pool

import (
	"cmp"

	"github.com/rockpool/rockpool/runtime"
)

// look finds out what runners are made from now. As long as the cluster hasn't
// the environment's image, that is the revision before, as many as are wanted
// now; and nothing, where there is none.
func (o *owner) look() {
	o.making, o.image, o.awaiting = o.env, o.pool.options.image(o.env), false
	o.making.Previous = nil
	if !o.pool.options.pulls(o.env) || o.image.State == runtime.ImageReady {
		return
	}
	if o.env.Previous == nil {
		o.awaiting = true
		return
	}
	o.making = *o.env.Previous
	o.making.PoolSize = o.env.PoolSize
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

// reasonAwaiting is why runners can't be had meanwhile.
func (o *owner) reasonAwaiting() string {
	return "the environment's image isn't here: " + cmp.Or(o.image.Reason, "it is being pulled")
}
