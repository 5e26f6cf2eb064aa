// Command chaos finds out whether anything is lost: it has clients use a real
// server that is killed every few seconds, kills agents and sandboxes, fills up
// the disk, and judges every byte, claim and outcome by what it knows itself,
// not by what a server says.
//
// What it can know: its programs print numbered records, take a time that is
// known and end in a way that only they could choose; its uploads have digests;
// each runner is marked by its first holder; and who kills an agent knows when.
// Only how often each part of the scheduler was used comes from the servers'
// own counters.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/chaos/clients"
	"github.com/rockpool/rockpool/test/chaos/house"
	"github.com/rockpool/rockpool/test/chaos/ledger"
	"github.com/rockpool/rockpool/test/chaos/moment"
	"github.com/rockpool/rockpool/test/chaos/schedule"
)

// Config says what a run is.
type Config struct {
	Program  string // rockpool
	Nomad    string // a program that runs a Nomad and obeys (test/nomadtest/cmd), which is to have the runners; "": this machine has them
	Seed     uint64 // of the faults, and of what clients choose
	For      time.Duration
	Every    time.Duration // between two faults, on average
	Clients  int
	Servers  int  // that live at the same time; several need a Nomad, of which each node runs containers
	Short    bool // a run too short to come by everything: only what must not happen is judged
	Progress io.Writer
}

// finishWithin is how long clients may take to finish when all faults are over.
const finishWithin = 3 * time.Minute

// Run runs servers and clients, and reports what came out. It needs root. The
// error says why the run could not be led to its end. Nothing is left on the
// machine either way but, where something was wrong, the servers' log.
func Run(ctx context.Context, config Config) (report Report, err error) {
	dir, err := os.MkdirTemp("", "rockpool-chaos-")
	if err != nil {
		return Report{}, err
	}
	began := time.Now()
	l := ledger.New()
	h, err := house.New(ctx, config.Program, dir, l)
	switch {
	case err != nil:
	case config.Servers > 1:
		if err = h.UseNomad(ctx, config.Nomad, "docker", 2, config.Progress); err == nil {
			err = h.UseSeveral(ctx, config.Servers)
		}
	case config.Nomad != "":
		err = h.UseNomad(ctx, config.Nomad, "raw_exec", 1, config.Progress)
	}
	if h != nil {
		defer func() { err = errors.Join(err, h.Close()) }()
	}
	if err != nil {
		return Report{}, errors.Join(err, os.RemoveAll(dir))
	}
	defer h.CloseIdle()
	d, err := house.MountDisk(filepath.Join(dir, "disk"))
	if err != nil {
		return Report{}, errors.Join(err, os.RemoveAll(dir))
	}
	s := &storm{House: h, timing: moment.NewTiming(), disk: d, boxes: h.Sandboxes(), say: func(format string, args ...any) {
		_, _ = fmt.Fprintf(config.Progress, "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}}
	err = s.run(ctx, config)
	err = errors.Join(err, s.clear(ctx))
	if gone := d.Unmount(); gone != nil {
		l.Wrong(ledger.LeakedMounts, 1, "%v", gone)
	}
	report = newReport(config, l, h.Used(), time.Since(began))
	if ctx.Err() != nil || err == nil && len(report.Failures()) == 0 {
		return report, errors.Join(err, os.RemoveAll(dir))
	}
	report.Log = h.Log
	return report, errors.Join(err, h.Nomad.KeepLogs(dir))
}

// run is all of it but the end.
func (s *storm) run(ctx context.Context, config Config) error {
	for s.Vacant() > 0 {
		if err := s.restart(ctx); err != nil {
			return err
		}
	}
	if err := clients.PutEnvironments(ctx, s.House); err != nil {
		return fmt.Errorf("put the environments: %w", err)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	var others, users sync.WaitGroup
	defer others.Wait()
	defer end() // of who scrapes, before it is waited for
	others.Go(func() { s.Scrape(ctx) })
	if s.Database != nil {
		others.Go(func() { s.Ledger.Count(ledger.LongestWait, s.Watch(ctx, s.say).Milliseconds()) })
	}
	enough := make(chan struct{})
	for i := range config.Clients {
		c := clients.NewHolder(s.House, s.timing, fmt.Sprintf("client%d", i), config.Seed, uint64(i+1))
		users.Go(func() { c.Live(ctx, enough) })
	}
	c := clients.NewCrowd(s.House, s.timing, "crowd", config.Seed, 1000)
	users.Go(func() { c.Live(ctx, enough) })

	err := s.faults(ctx, config)
	close(enough)
	s.say("no more faults: the clients finish")
	late := time.AfterFunc(finishWithin, func() {
		s.Ledger.Wrong(ledger.Unfinished, 1, "clients still wait, %s after the last fault", finishWithin)
		end()
	})
	defer late.Stop()
	if err != nil {
		end()
	}
	users.Wait()
	if ctx.Err() == nil {
		s.say("all that ended is looked at again")
		for _, r := range s.Ledger.All() {
			clients.Again(ctx, s.House, r)
		}
		s.Look(ctx)
	}
	return err
}

// faults has one after the other, until the time is over; on Nomad, whose own
// faults take their time, also until each has come, unless the run is short.
func (s *storm) faults(ctx context.Context, config Config) error {
	round := schedule.Here()
	if s.Nomad != nil {
		round = schedule.OnNomad()
	}
	if s.Database != nil {
		round = schedule.Several()
	}
	plan := schedule.New(config.Seed, config.Every, round)
	began, filled := time.Now(), false
	for struck := 0; ctx.Err() == nil; struck++ {
		f := plan.Next()
		if !filled && s.Database == nil && time.Since(began) > config.For/2 {
			filled = true
			if err := s.strike(ctx, schedule.Fault{Kind: schedule.FillDisk}); err != nil {
				return err
			}
		}
		all := s.Nomad == nil || config.Short || struck >= len(round)
		if left := config.For - time.Since(began); all && f.Wait > left {
			return s.rest(ctx, max(left, 0))
		}
		if err := s.rest(ctx, f.Wait); err != nil {
			return err
		}
		if err := s.strike(ctx, f); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// clear ends the last server as an upgrade does, has another one remove
// everything, whatever became of the run, and one more sweep what that stood on.
func (s *storm) clear(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	for _, server := range s.Living() {
		s.Stop(server)
	}
	for range 2 {
		last, err := s.House.Start("remove")
		if err != nil {
			return err
		}
		if err := s.Answers(ctx, last); err != nil {
			s.Kill(last)
			return fmt.Errorf("the server that is to remove everything: %w: %s", err, s.LastWords())
		}
		// One on Nomad answers before it has looked there.
		if _, err := client.GetEnvironments(ctx, s.Patient); err != nil {
			return err
		}
		s.Stop(last)
	}
	s.Leaks()
	if s.Nomad != nil {
		return s.Nomad.Leaks(ctx, s.Ledger)
	}
	return nil
}
