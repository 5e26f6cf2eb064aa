package pool

import (
	"cmp"

	"github.com/rockpool/rockpool/runtime"
)

// look finds out what runners are made from now. As long as the cluster hasn't
// the environment's image, that is the revision before, as many as are wanted
// now; and nothing, where there is none.
func (o *owner) look() {
	o.making, o.image, o.awaiting = o.env, runtime.ImageStatus{}, false
	o.making.Previous = nil
	if o.env.Pin.Digest == "" || o.pool.options.Image == nil {
		return
	}
	o.image = o.pool.options.Image(o.env.Pin)
	if o.image.State == runtime.ImageReady {
		return
	}
	if o.env.Previous == nil {
		o.awaiting = true
		return
	}
	o.making = *o.env.Previous
	o.making.PoolSize = o.env.PoolSize
}

// reasonAwaiting is why runners can't be had meanwhile.
func (o *owner) reasonAwaiting() string {
	return "the environment's image isn't here: " + cmp.Or(o.image.Reason, "it is being pulled")
}
