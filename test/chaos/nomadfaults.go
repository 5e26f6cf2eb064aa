package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// strikeNomad carries out a fault of Nomad itself.
func (s *storm) strikeNomad(ctx context.Context, f fault) error {
	part := strings.TrimPrefix(f.part(), "Nomad's ")
	begin, end, figure := "kill "+part, "restart "+part, nomadKills
	switch f.kind {
	case drainNode:
		return s.drain(ctx, f)
	case freezeClient, freezeNomad:
		begin, end, figure = "freeze "+part, "thaw "+part, nomadFreezes
	}
	if err := s.nomad.order(begin); err != nil {
		return err
	}
	s.ledger.count(figure, 1)
	pause(ctx, f.down)
	return s.nomad.order(end)
}

// drain drains the node, at once or within a second, and ends that.
func (s *storm) drain(ctx context.Context, f fault) error {
	ctx = context.WithoutCancel(ctx)
	var nodes []struct{ ID string }
	if err := s.nomad.ask(ctx, http.MethodGet, "/v1/nodes", nil, &nodes); err != nil || len(nodes) != 1 {
		return errors.Join(fmt.Errorf("%d nodes, not one", len(nodes)), err)
	}
	path := "/v1/node/" + nodes[0].ID + "/drain"
	deadline := time.Duration(-1) // at once
	if f.choice%2 == 0 {
		deadline = time.Second
	}
	over := s.ledger.drain()
	defer over()
	if err := s.nomad.ask(ctx, http.MethodPut, path, map[string]any{"DrainSpec": map[string]any{"Deadline": deadline}}, nil); err != nil {
		return err
	}
	s.ledger.count(drained, 1)
	pause(ctx, f.down)
	return s.nomad.ask(ctx, http.MethodPut, path, map[string]any{"DrainSpec": nil, "MarkEligible": true}, nil)
}

// onNomad is how an operator, or a failure, harms one runner there.
func (s *storm) onNomad(ctx context.Context, kind faultKind) func(runner string) bool {
	return func(runner string) bool {
		method, path, body := http.MethodDelete, "/v1/job/"+jobOf(runner), map[string]any(nil)
		switch kind {
		case stopJob:
		case purgeJob, purgeIdle:
			path += "?purge=true"
		default:
			a := s.nomad.allocation(ctx, runner)
			if a == "" {
				return false
			}
			method = http.MethodPut
			switch kind {
			case stopAllocation:
				path = "/v1/allocation/" + a + "/stop"
			case restartTask:
				path, body = "/v1/client/allocation/"+a+"/restart", map[string]any{}
			default:
				path, body = "/v1/client/allocation/"+a+"/signal", map[string]any{"Signal": "SIGKILL"}
			}
		}
		return s.nomad.ask(ctx, method, path, body, nil) == nil // as it isn't while Nomad has just begun
	}
}

// figureOf is what counts a fault of one runner on Nomad.
func figureOf(kind faultKind) string {
	switch kind {
	case killTask, killIdleTask, restartTask:
		return tasksKilled
	default:
		return jobsEnded
	}
}
