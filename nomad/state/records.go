package state

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
)

// A Record is the content of a runner's variable. The variable is created when the runner's agent
// has answered. Each later write is a claim. So the list of variables, which has no contents,
// distinguishes idle runners from claimed ones.
type Record struct {
	Environment runtime.EnvironmentID
	Allocation  string        // where the agent answered
	Restarts    uint64        // of its task, when the agent answered
	Claim       runtime.Claim // the zero Claim means that it is not claimed
	Index       uint64        // of this write
	Created     uint64        // index of the first write
	At          time.Time     // of the first write
}

// variable returns r's variable. Its ModifyIndex makes the write conditional.
func (r Record) variable(path string) (*api.Variable, error) {
	items := api.VariableItems{
		"environment": string(r.Environment), "allocation": r.Allocation, "restarts": strconv.FormatUint(r.Restarts, 10),
	}
	if r.Claim.Held() {
		text, err := json.Marshal(r.Claim)
		if err != nil {
			return nil, err
		}
		items["claim"] = string(text)
	}
	return &api.Variable{Path: path, Items: items, ModifyIndex: r.Index}, nil
}

// readVariable reads a variable. A claim that can't be parsed counts as one that can't be renewed.
func readVariable(v *api.Variable) Record {
	r := Record{
		Environment: runtime.EnvironmentID(v.Items["environment"]), Allocation: v.Items["allocation"],
		Index: v.ModifyIndex, Created: v.CreateIndex, At: time.Unix(0, v.CreateTime),
	}
	r.Restarts, _ = strconv.ParseUint(v.Items["restarts"], 10, 64)
	if text, claimed := v.Items["claim"]; claimed && json.Unmarshal([]byte(text), &r.Claim) != nil {
		r.Claim = runtime.Claim{Epoch: 1 << 30, InactivityTimeout: time.Minute, ExpiresAt: time.Unix(0, v.ModifyTime).Add(time.Minute)}
	}
	return r
}

// Records reads and writes the records of one server's runners. It is safe for concurrent use.
type Records struct {
	Nomad *connection.Client
	Names job.Names
}

// Read returns a runner's record, or nil if there is none.
func (s Records) Read(ctx context.Context, id runtime.RunnerID) (*Record, error) {
	var found *Record
	err := s.Nomad.Call(ctx, "read the claim of runner "+string(id), func(ctx context.Context) error {
		v, _, err := s.Nomad.API().Variables().Peek(s.Names.Claim(id), connection.Query(ctx))
		if err == nil && v != nil {
			found = new(readVariable(v))
		}
		return err
	})
	return found, err
}

const readAtOnce = 8

// ReadAll returns the records of runners. It leaves out those that don't exist.
func (s Records) ReadAll(ctx context.Context, ids []runtime.RunnerID) (map[runtime.RunnerID]Record, error) {
	var mu sync.Mutex // guards all
	all := map[runtime.RunnerID]Record{}
	var g errgroup.Group
	g.SetLimit(readAtOnce)
	for _, id := range ids {
		g.Go(func() error {
			read, err := s.Read(ctx, id)
			if read != nil {
				mu.Lock()
				all[id] = *read
				mu.Unlock()
			}
			return err
		})
	}
	return all, g.Wait()
}

// Write stores r if the stored record has r's index; 0 means that none is stored. It returns the
// record that is stored afterwards, if any, and whether that is r. A repeated call after a lost
// answer succeeds.
func (s Records) Write(ctx context.Context, id runtime.RunnerID, r Record) (stored Record, done bool, err error) {
	v, err := r.variable(s.Names.Claim(id))
	if err != nil {
		return r, false, err
	}
	err = s.Nomad.Call(ctx, "store the claim of runner "+string(id), func(ctx context.Context) error {
		now, _, err := s.Nomad.API().Variables().CheckedUpdate(v, connection.Writing(ctx))
		var conflict api.ErrCASConflict
		switch {
		case err == nil:
			stored, done = r, true
			stored.Index, stored.Created, stored.At = now.ModifyIndex, now.CreateIndex, time.Unix(0, now.CreateTime)
			return nil
		case errors.As(err, &conflict) && conflict.Conflict != nil:
			// An earlier attempt may have stored it without an answer.
			stored = readVariable(conflict.Conflict)
			done = stored.Index > 0 && stored.Allocation == r.Allocation && stored.Claim.Equal(r.Claim)
			return nil
		default:
			return err
		}
	})
	return stored, done, err
}

// Delete deletes a runner's record. A missing record isn't an error.
func (s Records) Delete(ctx context.Context, id runtime.RunnerID) error {
	return s.Nomad.Call(ctx, "delete the claim of runner "+string(id), func(ctx context.Context) error {
		_, err := s.Nomad.API().Variables().Delete(s.Names.Claim(id), connection.Writing(ctx))
		return connection.IgnoreNotFound(err)
	})
}
