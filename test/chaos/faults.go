package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/chaos/clients"
	"github.com/rockpool/rockpool/test/chaos/house"
	"github.com/rockpool/rockpool/test/chaos/ledger"
	"github.com/rockpool/rockpool/test/chaos/moment"
	"github.com/rockpool/rockpool/test/chaos/schedule"
)

// A storm carries out a schedule. Only the storm starts and stops servers.
type storm struct {
	*house.House
	timing *moment.Timing
	disk   *house.Disk
	boxes  house.Sandboxes
	server *house.Server
	say    func(format string, args ...any)
}

// The time to wait for a moment or a victim, before a fault hits anything.
const momentPatience = 3 * time.Second

// strike carries out one fault. After an error the run can't continue.
func (s *storm) strike(ctx context.Context, f schedule.Fault) error {
	s.say("%s", f)
	if all := s.Living(); s.Database != nil && len(all) > 0 { // strike any of them
		s.server = all[f.Choice%uint64(len(all))]
	}
	switch f.Kind {
	case schedule.KillServer, schedule.KillRestore, schedule.StopRestore, schedule.DestroyDown, schedule.PurgeDown:
		if f.Kind == schedule.StopRestore {
			clients.CrowdIn(ctx, s.House, 50)
		}
		if f.Moment == moment.Making {
			s.awaitMaking(ctx)
			moment.Pause(ctx, f.After)
		} else {
			s.timing.Await(ctx, f.Moment, f.After, momentPatience)
		}
		s.killNow(ctx, f.Moment)
		return s.replace(ctx, f)
	case schedule.StopServer:
		clients.CrowdIn(ctx, s.House, 50)
		moment.Pause(ctx, 700*time.Millisecond) // they all wait for capacity
		var calls sync.WaitGroup
		calls.Go(func() { clients.CrowdIn(ctx, s.House, 0) })
		moment.Pause(ctx, f.After)
		s.Stop(s.server)
		calls.Wait()
		s.Ledger.Count(ledger.Stops, 1)
		return s.restart(ctx)
	case schedule.FillDisk:
		return s.fillAndKill(ctx, f)
	case schedule.DrainNode, schedule.KillClient, schedule.KillNomad, schedule.FreezeClient, schedule.FreezeNomad:
		return s.strikeNomad(ctx, f)
	case schedule.KillDocker:
		return s.killDocker(ctx, f)
	case schedule.KillDatabase, schedule.FreezeDatabase:
		return s.strikeDatabase(ctx, f)
	default:
		s.harmOne(ctx, f)
		return nil
	}
}

// awaitMaking waits until a sandbox is being made.
func (s *storm) awaitMaking(ctx context.Context) {
	for end := time.Now().Add(momentPatience); time.Now().Before(end) && ctx.Err() == nil; moment.Pause(ctx, 2*time.Millisecond) {
		if creates, _ := s.Helpers(); creates > 0 {
			return
		}
	}
}

// killNow kills the server and records the moments that it hit.
func (s *storm) killNow(ctx context.Context, m moment.Moment) {
	if m == moment.Any {
		s.Look(ctx)
	}
	hit := s.timing.Lasting()
	s.expectAlive()
	s.Kill(s.server)
	creates, removes := s.Helpers()
	s.Ledger.Count(ledger.Kills, 1)
	for _, m := range hit {
		s.Ledger.Count(ledger.KillsDuring(m), 1)
	}
	if creates > 0 {
		s.Ledger.Count(ledger.KillsDuring(moment.Making), 1)
	}
	if removes > 0 {
		s.Ledger.Count(ledger.KillsRemoving, 1)
	}
}

// replace starts the next server after the fault's downtime.
func (s *storm) replace(ctx context.Context, f schedule.Fault) error {
	// While no server runs: the next one must find out what happened meanwhile.
	if f.Kind == schedule.DestroyDown {
		for _, held := range []bool{true, false} {
			if runner := s.victim(f.Choice, held); runner != "" && s.harm(runner, s.boxes.Destroy) {
				s.Ledger.Count(ledger.Destroyed, 1)
			}
		}
	}
	if f.Kind == schedule.PurgeDown {
		for _, held := range []bool{true, false} {
			if runner := s.victim(f.Choice, held); runner != "" && s.harm(runner, s.onNomad(ctx, schedule.PurgeJob)) {
				s.Ledger.Count(ledger.JobsEnded, 1)
			}
		}
	}
	moment.Pause(ctx, f.Down)
	if f.Kind == schedule.StopRestore {
		return s.stopTakingOver(ctx, f)
	}
	if f.Kind == schedule.KillRestore {
		left := len(s.runners())
		next, err := s.House.Start("keep")
		if err != nil {
			return err
		}
		s.server = next
		moment.Pause(ctx, f.After)
		s.expectAlive()
		s.Kill(s.server)
		s.Ledger.Count(ledger.Kills, 1)
		if left > 0 {
			s.Ledger.Count(ledger.KillsRestoring, 1)
		}
	}
	return s.restart(ctx)
}

// stopTakingOver starts a server that has to remove gone sandboxes and waits for a frozen agent's
// answer, and stops it then. It starts the next one when that has ended.
func (s *storm) stopTakingOver(ctx context.Context, f schedule.Fault) error {
	for range 2 {
		if gone := s.victim(f.Choice, false); gone != "" && s.harm(gone, s.boxes.Destroy) {
			s.Ledger.Count(ledger.Destroyed, 1)
		}
	}
	runner := s.victim(f.Choice, false)
	if runner == "" {
		runner = s.victim(f.Choice, true)
	}
	agent := s.boxes.Agent(runner)
	frozen := agent != 0 && s.boxes.Send(runner, agent, unix.SIGSTOP)
	next, err := s.House.Start("keep")
	if err == nil {
		s.server = next
		moment.Pause(ctx, f.After)
		s.Stop(s.server)
		s.Ledger.Count(ledger.StopsRestoring, 1)
	}
	if frozen {
		s.boxes.Send(runner, agent, unix.SIGCONT)
	}
	if err != nil {
		return err
	}
	return s.restart(ctx)
}

// restart starts a server and waits until it answers. While the disk is full, the server may refuse
// to start.
func (s *storm) restart(ctx context.Context) error {
	for try := 0; ; try++ {
		began := time.Now()
		next, err := s.House.Start("keep")
		if err != nil {
			return err
		}
		s.server = next
		err = s.Answers(ctx, next)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case errors.Is(err, house.ErrEnded) && s.Ledger.WasFull(began):
			s.Ledger.Count(ledger.RefusedStarts, 1)
			moment.Pause(ctx, 200*time.Millisecond)
		default:
			s.Ledger.Wrong(ledger.UnaskedEnds, 1, "at its start: %v: %s", err, s.LastWords())
			if try >= 3 {
				return fmt.Errorf("no server starts: %w", err)
			}
			s.Kill(next)
		}
	}
}

// fillAndKill fills the disk and kills the server. It starts the next server before it frees the
// disk.
func (s *storm) fillAndKill(ctx context.Context, f schedule.Fault) error {
	const stays = 1500 * time.Millisecond
	s.Ledger.FillDisk()
	if err := s.disk.Fill(); err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	s.Ledger.Count(ledger.Fills, 1)
	moment.Pause(ctx, stays)
	s.killNow(ctx, f.Moment)
	freed := make(chan error, 1)
	go func() { // the end is awaited below
		moment.Pause(ctx, stays)
		err := s.disk.Free()
		s.Ledger.FreeDisk()
		freed <- err
	}()
	return errors.Join(s.restart(ctx), <-freed)
}

// harmOne harms a runner while the server runs.
func (s *storm) harmOne(ctx context.Context, f schedule.Fault) {
	if f.Kind == schedule.KillStarting {
		var calls sync.WaitGroup
		calls.Go(func() {
			clients.CrowdIn(ctx, s.House, 0)
			moment.Pause(ctx, 200*time.Millisecond)
			clients.CrowdIn(ctx, s.House, 10)
		})
		s.Ledger.Count(ledger.KilledStarting, s.killNewborns(ctx, 3))
		calls.Wait()
		return
	}
	for end := time.Now().Add(momentPatience); time.Now().Before(end) && ctx.Err() == nil; moment.Pause(ctx, 10*time.Millisecond) {
		runner := s.victim(f.Choice, f.Kind != schedule.KillIdle && f.Kind != schedule.KillIdleTask && f.Kind != schedule.PurgeIdle)
		switch {
		case runner == "":
		case s.Nomad != nil:
			if s.harm(runner, s.onNomad(ctx, f.Kind)) {
				s.Ledger.Count(figureOf(f.Kind), 1)
				return
			}
		case f.Kind == schedule.DestroyHeld && s.harm(runner, s.boxes.Destroy):
			s.Ledger.Count(ledger.Destroyed, 1)
			return
		case f.Kind == schedule.KillHeld && s.harm(runner, s.boxes.KillAgent):
			s.Ledger.Count(ledger.KilledHeld, 1)
			return
		case f.Kind == schedule.KillIdle && s.harm(runner, s.boxes.KillAgent):
			s.Ledger.Count(ledger.KilledIdle, 1)
			return
		}
	}
}

// harm reports whether a runner was harmed. If nothing was hit, the runner isn't excused: a server
// may have lost it.
func (s *storm) harm(runner string, how func(string) bool) bool {
	undo := s.Ledger.Harm(runner)
	hit := how(runner)
	if !hit {
		undo()
	}
	return hit
}

// victim chooses a claimed or an unclaimed runner; "" if there is none.
func (s *storm) victim(choice uint64, held bool) string {
	all := s.Ledger.Held()
	if !held {
		all = slices.DeleteFunc(s.runners(), func(runner string) bool { return s.Ledger.WasClaimed(runner) || s.Ledger.WasHarmed(runner) })
	}
	if len(all) == 0 {
		return ""
	}
	return all[choice%uint64(len(all))]
}

// runners returns the ids of runners that exist, or existed a moment ago.
func (s *storm) runners() []string {
	if s.Nomad != nil {
		return s.Nomad.Runners()
	}
	return s.boxes.Runners()
}

// killNewborns kills agents as soon as they exist, mostly before they have answered.
func (s *storm) killNewborns(ctx context.Context, most int64) (killed int64) {
	known := map[string]bool{}
	for _, runner := range s.boxes.Runners() {
		known[runner] = true
	}
	for end := time.Now().Add(momentPatience); killed < most && time.Now().Before(end) && ctx.Err() == nil; moment.Pause(ctx, time.Millisecond) {
		for _, runner := range s.boxes.Runners() {
			if !known[runner] && s.boxes.Agent(runner) != 0 && s.harm(runner, s.boxes.KillAgent) {
				known[runner] = true
				killed++
			}
		}
	}
	return killed
}

// expectAlive records a server that has ended before it was to be killed.
func (s *storm) expectAlive() {
	if s.hasEnded() {
		s.Ledger.Wrong(ledger.UnaskedEnds, 1, "before it was killed: %v: %s", s.server.Err, s.LastWords())
	}
}

// hasEnded reports whether the current server's process has ended. It doesn't block.
func (s *storm) hasEnded() bool {
	select {
	case <-s.server.Ended:
		return true
	default:
		return false
	}
}

// rest waits until the next fault is due. It records a server that ends meanwhile.
func (s *storm) rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil
	case <-s.server.Ended:
		s.Ledger.Wrong(ledger.UnaskedEnds, 1, "%v: %s", s.server.Err, s.LastWords())
		s.Kill(s.server)
	}
	for s.Vacant() > 0 { // of several servers, others may have ended too
		if s.Database != nil && !s.hasEnded() {
			s.Ledger.Wrong(ledger.UnaskedEnds, 1, "one of several: %s", s.LastWords())
		}
		if err := s.restart(ctx); err != nil {
			return err
		}
	}
	return nil
}
