package nomad

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// A record is what a runner's variable says. It is made when the runner's agent
// has answered, and each later write is a claim, so that the list of variables,
// which has no contents, tells idle runners from claimed ones.
type record struct {
	environment runtime.EnvironmentID
	allocation  string
	restarts    uint64
	claim       runtime.Claim
	index       uint64 // of this write
	created     uint64 // of the first
	at          time.Time
}

func (r record) variable(path string) (*api.Variable, error) {
	items := api.VariableItems{
		"environment": string(r.environment), "allocation": r.allocation, "restarts": strconv.FormatUint(r.restarts, 10),
	}
	if r.claim.Held() {
		text, err := json.Marshal(r.claim)
		if err != nil {
			return nil, err
		}
		items["claim"] = string(text)
	}
	return &api.Variable{Path: path, Items: items, ModifyIndex: r.index}, nil
}

// readVariable returns what a variable says. A claim that can't be read counts
// as one that nobody can renew.
func readVariable(v *api.Variable) record {
	r := record{
		environment: runtime.EnvironmentID(v.Items["environment"]), allocation: v.Items["allocation"],
		index: v.ModifyIndex, created: v.CreateIndex, at: time.Unix(0, v.CreateTime),
	}
	r.restarts, _ = strconv.ParseUint(v.Items["restarts"], 10, 64)
	if text, claimed := v.Items["claim"]; claimed && json.Unmarshal([]byte(text), &r.claim) != nil {
		r.claim = runtime.Claim{Epoch: 1 << 30, InactivityTimeout: time.Minute, ExpiresAt: time.Unix(0, v.ModifyTime).Add(time.Minute)}
	}
	return r
}

// readRecord returns a runner's record, or nil if there is none.
func (c *Cluster) readRecord(ctx context.Context, id runtime.RunnerID) (*record, error) {
	var found *record
	err := c.call(ctx, "read the claim of runner "+string(id), func(ctx context.Context) error {
		v, _, err := c.nomad.calls.Variables().Peek(c.names.claim(id), query(ctx))
		if err == nil && v != nil {
			found = new(readVariable(v))
		}
		return err
	})
	return found, err
}

// writeRecord stores r if what is stored has r's index (0: nothing is stored),
// and returns what is stored then, if anything, and whether it is r.
func (c *Cluster) writeRecord(ctx context.Context, id runtime.RunnerID, r record) (stored record, done bool, err error) {
	v, err := r.variable(c.names.claim(id))
	if err != nil {
		return r, false, err
	}
	err = c.call(ctx, "store the claim of runner "+string(id), func(ctx context.Context) error {
		now, _, err := c.nomad.calls.Variables().CheckedUpdate(v, writing(ctx))
		var conflict api.ErrCASConflict
		switch {
		case err == nil:
			stored, done = r, true
			stored.index, stored.created, stored.at = now.ModifyIndex, now.CreateIndex, time.Unix(0, now.CreateTime)
			return nil
		case errors.As(err, &conflict) && conflict.Conflict != nil:
			// It may be what an earlier attempt stored without an answer.
			stored = readVariable(conflict.Conflict)
			done = stored.index > 0 && stored.allocation == r.allocation && stored.claim.Equal(r.claim)
			return nil
		default:
			return err
		}
	})
	return stored, done, err
}

// deleteRecord deletes a runner's variable; one that isn't there is success.
func (c *Cluster) deleteRecord(ctx context.Context, id runtime.RunnerID) error {
	return c.call(ctx, "delete the claim of runner "+string(id), func(ctx context.Context) error {
		_, err := c.nomad.calls.Variables().Delete(c.names.claim(id), writing(ctx))
		if notFound(err) {
			return nil
		}
		return err
	})
}
