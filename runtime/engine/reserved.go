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

// reserve replaces what an environment's pool reserves, and returns a function that restores it. It
// returns QUOTA_EXCEEDED, and changes nothing, if that needs more than the tenant's quotas have. With
// adopt it reserves even that. The catalog's turn to change environments must be held.
func (h *holdings) reserve(id runtime.EnvironmentID, to reservation, adopt bool) (undo func(), err error) {
	from := h.pools[id]
	if from.tenant != to.tenant {
		from.amounts = quota.Amounts{}
	}
	if adopt {
		h.ledger.AdoptAll(to.tenant, to.amounts.Minus(from.amounts))
	} else if err := h.ledger.AcquireAll(to.tenant, to.amounts.Minus(from.amounts)); err != nil {
		return nil, err
	}
	from, h.pools[id] = h.pools[id], to
	kept := quota.Amounts{}
	if from.tenant == to.tenant {
		kept = to.amounts
	}
	h.ledger.ReleaseAll(from.tenant, from.amounts.Minus(kept))
	if to.amounts == (quota.Amounts{}) {
		delete(h.pools, id)
	}
	return func() { _, _ = h.reserve(id, from, true) }, nil
}
