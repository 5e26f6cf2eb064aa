package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A storm carries out a schedule. It alone starts and ends servers.
type storm struct {
	*house
	timing *timing
	disk   *disk
	boxes  sandboxes
	server *server
	say    func(format string, args ...any)
}

// How long a moment or a victim is waited for, before a fault hits what there is.
const momentPatience = 3 * time.Second

// strike carries out one fault. An error ends the run: nothing more can be
// learnt from it.
func (s *storm) strike(ctx context.Context, f fault) error {
	s.say("%s", f)
	switch f.kind {
	case killServer, killRestore, stopRestore, destroyDown, purgeDown:
		if f.kind == stopRestore {
			crowdIn(ctx, s.house, 50)
		}
		if f.moment == atMaking {
			s.awaitMaking(ctx)
			pause(ctx, f.after)
		} else {
			s.timing.await(ctx, f.moment, f.after, momentPatience)
		}
		s.killNow(ctx, f.moment)
		return s.replace(ctx, f)
	case stopServer:
		crowdIn(ctx, s.house, 50)
		pause(ctx, 700*time.Millisecond) // all of them wait for room
		var calls sync.WaitGroup
		calls.Go(func() { crowdIn(ctx, s.house, 0) })
		pause(ctx, f.after)
		s.stop(s.server)
		calls.Wait()
		s.ledger.count(stops, 1)
		return s.restart(ctx)
	case fillDisk:
		return s.fillAndKill(ctx, f)
	case drainNode, killClient, killNomad, freezeClient, freezeNomad:
		return s.strikeNomad(ctx, f)
	default:
		s.harmOne(ctx, f)
		return nil
	}
}

// awaitMaking waits until a sandbox is being made.
func (s *storm) awaitMaking(ctx context.Context) {
	for end := time.Now().Add(momentPatience); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, 2*time.Millisecond) {
		if creates, _ := s.helpers(); creates > 0 {
			return
		}
	}
}

// killNow kills the server and notes what that hit.
func (s *storm) killNow(ctx context.Context, m moment) {
	if m == anyMoment {
		s.look(ctx)
	}
	hit := s.timing.lasting()
	s.expectAlive()
	s.kill(s.server)
	creates, removes := s.helpers()
	s.ledger.count(kills, 1)
	for _, m := range hit {
		s.ledger.count(killsDuring(m), 1)
	}
	if creates > 0 {
		s.ledger.count(killsDuring(atMaking), 1)
	}
	if removes > 0 {
		s.ledger.count(killsRemoving, 1)
	}
}

// replace starts the next server, after what is to happen before.
func (s *storm) replace(ctx context.Context, f fault) error {
	if f.kind == destroyDown {
		for _, held := range []bool{true, false} {
			if runner := s.victim(f.choice, held); runner != "" && s.harm(runner, s.boxes.destroy) {
				s.ledger.count(destroyed, 1)
			}
		}
	}
	if f.kind == purgeDown {
		for _, held := range []bool{true, false} {
			if runner := s.victim(f.choice, held); runner != "" && s.harm(runner, s.onNomad(ctx, purgeJob)) {
				s.ledger.count(jobsEnded, 1)
			}
		}
	}
	pause(ctx, f.down)
	if f.kind == stopRestore {
		return s.stopTakingOver(ctx, f)
	}
	if f.kind == killRestore {
		left := len(s.runners())
		next, err := s.house.start("keep")
		if err != nil {
			return err
		}
		s.server = next
		pause(ctx, f.after)
		s.expectAlive()
		s.kill(s.server)
		s.ledger.count(kills, 1)
		if left > 0 {
			s.ledger.count(killsRestoring, 1)
		}
	}
	return s.restart(ctx)
}

// stopTakingOver starts a server and asks it to end while it knows of sandboxes
// that are gone, and waits for the answer of an agent that is frozen; and the
// next one when that goes on.
func (s *storm) stopTakingOver(ctx context.Context, f fault) error {
	for range 2 {
		if gone := s.victim(f.choice, false); gone != "" && s.harm(gone, s.boxes.destroy) {
			s.ledger.count(destroyed, 1)
		}
	}
	runner := s.victim(f.choice, false)
	if runner == "" {
		runner = s.victim(f.choice, true)
	}
	agent := s.boxes.agent(runner)
	frozen := agent != 0 && s.boxes.send(runner, agent, unix.SIGSTOP)
	next, err := s.house.start("keep")
	if err == nil {
		s.server = next
		pause(ctx, f.after)
		s.stop(s.server)
		s.ledger.count(stopsRestoring, 1)
	}
	if frozen {
		s.boxes.send(runner, agent, unix.SIGCONT)
	}
	if err != nil {
		return err
	}
	return s.restart(ctx)
}

// restart starts a server and waits until it answers. While the disk is full it
// may refuse to start.
func (s *storm) restart(ctx context.Context) error {
	for try := 0; ; try++ {
		began := time.Now()
		next, err := s.house.start("keep")
		if err != nil {
			return err
		}
		s.server = next
		err = s.answers(ctx, next)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case errors.Is(err, errEnded) && s.ledger.wasFull(began):
			s.ledger.count(refusedStarts, 1)
			pause(ctx, 200*time.Millisecond)
		default:
			s.ledger.wrong(unaskedEnds, 1, "a server that was started: %v: %s", err, s.lastWords())
			if try >= 3 {
				return fmt.Errorf("no server starts: %w", err)
			}
			s.kill(next)
		}
	}
}

// fillAndKill fills the disk, and kills the server while it is full. The next one
// is started before there is room again.
func (s *storm) fillAndKill(ctx context.Context, f fault) error {
	const stays = 1500 * time.Millisecond
	s.ledger.fillDisk()
	if err := s.disk.fill(); err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	s.ledger.count(fills, 1)
	pause(ctx, stays)
	s.killNow(ctx, f.moment)
	freed := make(chan error, 1)
	go func() { // waited for below
		pause(ctx, stays)
		err := s.disk.free()
		s.ledger.freeDisk()
		freed <- err
	}()
	return errors.Join(s.restart(ctx), <-freed)
}

// harmOne harms a runner while the server is there.
func (s *storm) harmOne(ctx context.Context, f fault) {
	if f.kind == killStarting {
		var calls sync.WaitGroup
		calls.Go(func() {
			crowdIn(ctx, s.house, 0)
			pause(ctx, 200*time.Millisecond)
			crowdIn(ctx, s.house, 10)
		})
		s.ledger.count(killedStarting, s.killNewborns(ctx, 3))
		calls.Wait()
		return
	}
	for end := time.Now().Add(momentPatience); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, 10*time.Millisecond) {
		runner := s.victim(f.choice, f.kind != killIdle && f.kind != killIdleTask && f.kind != purgeIdle)
		switch {
		case runner == "":
		case s.nomad != nil:
			if s.harm(runner, s.onNomad(ctx, f.kind)) {
				s.ledger.count(figureOf(f.kind), 1)
				return
			}
		case f.kind == destroyHeld && s.harm(runner, s.boxes.destroy):
			s.ledger.count(destroyed, 1)
			return
		case f.kind == killHeld && s.harm(runner, s.boxes.killAgent):
			s.ledger.count(killedHeld, 1)
			return
		case f.kind == killIdle && s.harm(runner, s.boxes.killAgent):
			s.ledger.count(killedIdle, 1)
			return
		}
	}
}

// harm reports whether a runner was harmed. One in which nothing was hit is
// excused nothing: it may be gone by a server's fault.
func (s *storm) harm(runner string, how func(string) bool) bool {
	undo := s.ledger.harm(runner)
	hit := how(runner)
	if !hit {
		undo()
	}
	return hit
}

// victim chooses a runner that is held, or one that isn't; "" if there is none.
func (s *storm) victim(choice uint64, held bool) string {
	all := s.ledger.held()
	if !held {
		all = slices.DeleteFunc(s.runners(), func(runner string) bool { return s.ledger.isHolder(runner) || s.ledger.wasHarmed(runner) })
	}
	if len(all) == 0 {
		return ""
	}
	return all[choice%uint64(len(all))]
}

// runners returns the ids of what runs, or was there a moment ago.
func (s *storm) runners() []string {
	if s.nomad != nil {
		return s.nomad.runners()
	}
	return s.boxes.runners()
}

// killNewborns kills some agents as soon as they are there: before they can have
// answered, mostly.
func (s *storm) killNewborns(ctx context.Context, most int64) (killed int64) {
	known := map[string]bool{}
	for _, runner := range s.boxes.runners() {
		known[runner] = true
	}
	for end := time.Now().Add(momentPatience); killed < most && time.Now().Before(end) && ctx.Err() == nil; pause(ctx, time.Millisecond) {
		for _, runner := range s.boxes.runners() {
			if !known[runner] && s.boxes.agent(runner) != 0 && s.harm(runner, s.boxes.killAgent) {
				known[runner] = true
				killed++
			}
		}
	}
	return killed
}

// expectAlive notes a server that is about to be killed, and has ended before.
func (s *storm) expectAlive() {
	if s.hasEnded() {
		s.ledger.wrong(unaskedEnds, 1, "before it was killed: %v: %s", s.server.err, s.lastWords())
	}
}

func (s *storm) hasEnded() bool {
	select {
	case <-s.server.ended:
		return true
	default:
		return false
	}
}

// rest waits until the next fault is due. A server that ends meanwhile wasn't
// asked to.
func (s *storm) rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return nil
	case <-s.server.ended:
		s.ledger.wrong(unaskedEnds, 1, "%v: %s", s.server.err, s.lastWords())
		s.kill(s.server)
		return s.restart(ctx)
	}
}
