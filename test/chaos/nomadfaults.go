package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/test/chaos/house"
	"github.com/rockpool/rockpool/test/chaos/ledger"
	"github.com/rockpool/rockpool/test/chaos/moment"
	"github.com/rockpool/rockpool/test/chaos/schedule"
)

// strikeNomad carries out a fault of Nomad itself.
func (s *storm) strikeNomad(ctx context.Context, f schedule.Fault) error {
	part := strings.TrimPrefix(f.Part(), "Nomad's ")
	begin, end, figure := "kill "+part, "restart "+part, ledger.NomadKills
	switch f.Kind {
	case schedule.DrainNode:
		return s.drain(ctx, f)
	case schedule.FreezeClient, schedule.FreezeNomad:
		begin, end, figure = "freeze "+part, "thaw "+part, ledger.NomadFreezes
	}
	if err := s.Nomad.Order(begin); err != nil {
		return err
	}
	s.Ledger.Count(figure, 1)
	moment.Pause(ctx, f.Down)
	return s.Nomad.Order(end)
}

// killDocker kills the Docker daemon. Its restart ends all containers.
func (s *storm) killDocker(ctx context.Context, f schedule.Fault) error {
	over := s.Ledger.Drain()
	defer over()
	if err := s.Nomad.Order("kill docker"); err != nil {
		return err
	}
	s.Ledger.Count(ledger.DockerKills, 1)
	moment.Pause(ctx, f.Down)
	return s.Nomad.Order("restart docker")
}

// strikeDatabase carries out a fault of the servers' shared database.
func (s *storm) strikeDatabase(ctx context.Context, f schedule.Fault) error {
	s.Ledger.Count(ledger.DatabaseFaults, 1)
	if f.Kind == schedule.FreezeDatabase {
		s.Database.Signal(syscall.SIGSTOP)
		moment.Pause(ctx, f.Down)
		s.Database.Signal(syscall.SIGCONT)
		return nil
	}
	s.Database.Kill()
	moment.Pause(ctx, f.Down)
	return s.Database.Run(ctx)
}

// drain drains a node, immediately or within a second, and ends the drain.
func (s *storm) drain(ctx context.Context, f schedule.Fault) error {
	ctx = context.WithoutCancel(ctx)
	var nodes []struct{ ID string }
	if err := s.Nomad.Call(ctx, http.MethodGet, "/v1/nodes", nil, &nodes); err != nil || len(nodes) == 0 {
		return errors.Join(errors.New("there is no node"), err)
	}
	path := "/v1/node/" + nodes[f.Choice/2%uint64(len(nodes))].ID + "/drain"
	deadline := time.Duration(-1) // immediately
	if f.Choice%2 == 0 {
		deadline = time.Second
	}
	over := s.Ledger.Drain()
	defer over()
	if err := s.Nomad.Call(ctx, http.MethodPut, path, map[string]any{"DrainSpec": map[string]any{"Deadline": deadline}}, nil); err != nil {
		return err
	}
	s.Ledger.Count(ledger.Drained, 1)
	moment.Pause(ctx, f.Down)
	return s.Nomad.Call(ctx, http.MethodPut, path, map[string]any{"DrainSpec": nil, "MarkEligible": true}, nil)
}

// onNomad returns how an operator or a failure harms one runner on Nomad.
func (s *storm) onNomad(ctx context.Context, kind schedule.Kind) func(runner string) bool {
	return func(runner string) bool {
		method, path, body := http.MethodDelete, "/v1/job/"+house.JobOf(runner), map[string]any(nil)
		switch kind {
		case schedule.StopJob:
		case schedule.PurgeJob, schedule.PurgeIdle:
			path += "?purge=true"
		default:
			a := s.Nomad.Allocation(ctx, runner)
			if a == "" {
				return false
			}
			method = http.MethodPut
			switch kind {
			case schedule.StopAllocation:
				path = "/v1/allocation/" + a + "/stop"
			case schedule.RestartTask:
				path, body = "/v1/client/allocation/"+a+"/restart", map[string]any{}
			default:
				path, body = "/v1/client/allocation/"+a+"/signal", map[string]any{"Signal": "SIGKILL"}
			}
		}
		return s.Nomad.Call(ctx, method, path, body, nil) == nil // Nomad refuses while it starts
	}
}

// figureOf returns the figure that counts a fault of one runner on Nomad.
func figureOf(kind schedule.Kind) string {
	switch kind {
	case schedule.KillTask, schedule.KillIdleTask, schedule.RestartTask:
		return ledger.TasksKilled
	default:
		return ledger.JobsEnded
	}
}
