package engine

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

// reserve replaces what an environment's pool reserves, and returns a function that restores it. It
// returns QUOTA_EXCEEDED, and changes nothing, if that needs more than the tenant's quotas have. The
// catalog's turn to change environments must be held.
func (h *holdings) reserve(id runtime.EnvironmentID, to reservation) (undo func(), err error) {
	from := h.pools[id]
	if err := h.ledger.AcquireAll(to.tenant, to.beyond(from)); err != nil {
		return nil, err
	}
	h.replaceReserved(id, to)
	return func() { h.adoptReserved(id, from) }, nil
}

// adoptReserved is like reserve, and reserves even what exceeds the quotas.
func (h *holdings) adoptReserved(id runtime.EnvironmentID, to reservation) {
	h.ledger.AdoptAll(to.tenant, to.beyond(h.pools[id]))
	h.replaceReserved(id, to)
}

// replaceReserved replaces a reservation after what is new has been taken.
func (h *holdings) replaceReserved(id runtime.EnvironmentID, to reservation) {
	from := h.pools[id]
	h.ledger.ReleaseAll(from.tenant, from.beyond(to))
	if h.pools[id] = to; to.amounts == (quota.Amounts{}) {
		delete(h.pools, id)
	}
}
