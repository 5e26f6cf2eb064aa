package tenantusage

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
)

// A reservation is what the pool of an environment reserves of its tenant's quotas.
type reservation struct {
	tenant  runtime.TenantID
	amounts quota.Amounts
}

// reservationOf returns the reservation of an environment's pool.
func reservationOf(env runtime.Environment) reservation {
	amounts := quota.ReservedBy(env.Resources, env.PoolSize)
	amounts[quota.PoolRunners] = int64(env.PoolSize)
	return reservation{env.Tenant, amounts}
}

// beyond returns what r reserves in addition to another reservation.
func (r reservation) beyond(other reservation) quota.Amounts {
	if r.tenant != other.tenant {
		return r.amounts
	}
	return r.amounts.Minus(other.amounts)
}

// Reserve replaces what an environment's pool reserves, and returns a function that restores it. It
// returns QUOTA_EXCEEDED, and changes nothing, if that needs more than the tenant's quotas have. The
// turn to change environments must be held, as for the methods below.
func (u *Tracker) Reserve(env runtime.Environment) (undo func(), err error) {
	from, to := u.pools[env.ID], reservationOf(env)
	if err := u.Quotas.Of(to.tenant).AcquireAll(to.beyond(from)); err != nil {
		return nil, err
	}
	u.replace(env.ID, to)
	return func() { u.adopt(env.ID, from) }, nil
}

// AdoptReserved is like Reserve, and reserves even what exceeds the quotas.
func (u *Tracker) AdoptReserved(env runtime.Environment) { u.adopt(env.ID, reservationOf(env)) }

// ReleaseReserved releases what a deleted environment's pool reserved.
func (u *Tracker) ReleaseReserved(id runtime.EnvironmentID) { u.adopt(id, reservation{}) }

// adopt replaces a reservation, whatever the quotas.
func (u *Tracker) adopt(id runtime.EnvironmentID, to reservation) {
	u.Quotas.Of(to.tenant).AdoptAll(to.beyond(u.pools[id]))
	u.replace(id, to)
}

// replace replaces a reservation after what is new has been taken.
func (u *Tracker) replace(id runtime.EnvironmentID, to reservation) {
	from := u.pools[id]
	u.Quotas.Of(from.tenant).ReleaseAll(from.beyond(to))
	if u.pools[id] = to; to.amounts == (quota.Amounts{}) {
		delete(u.pools, id)
	}
}
