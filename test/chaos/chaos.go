// Command chaos checks that servers lose nothing. Clients use a real server. Meanwhile chaos kills
// it every few seconds, kills agents and sandboxes, and fills the disk. It judges every byte, claim
// and outcome by its own knowledge, not by what a server reports.
//
// It has this knowledge because its programs print numbered records, take a known time and end in a
// way that only they could choose. Its uploads have digests, and each runner is marked by its first
// holder. Chaos also knows when it killed which agent. Only the use of the scheduler's parts comes
// from the servers' own counters.
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

// Config describes a run.
type Config struct {
	Program  string // path of the program rockpool
	Nomad    string // program that runs a Nomad for the runners and takes orders (test/nomadtest/cmd); "" means runners on this machine
	Seed     uint64 // of the faults and of the clients' choices
	For      time.Duration
	Every    time.Duration // average time between two faults
	Clients  int
	Servers  int  // concurrent servers; several need a Nomad whose nodes run containers
	Short    bool // the run is too short to use every part: judge only what must not happen
	Progress io.Writer
}

// finishWithin is the time that clients have to finish after the last fault.
const finishWithin = 3 * time.Minute

// Run runs servers and clients, and reports the results. It needs root. The error says why the run
// could not be completed. Run removes everything that it made, except the servers' log if something
// was wrong.
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
	// clear has ended all servers: a busy disk means that a process is left.
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

// run does everything except the cleanup.
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
	defer end() // stop scraping before waiting for it
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
	// A client that never finishes is a wrong result, not a hang of the run.
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
		// An outcome and its output must still be the same now, whatever happened since.
		for _, r := range s.Ledger.All() {
			clients.Again(ctx, s.House, r)
		}
		s.Look(ctx)
	}
	return err
}

// faults strikes one fault after the other until the time is over. On Nomad, whose faults take
// longer, it also continues until each kind has struck, unless the run is short.
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

// clear stops the last server as an upgrade does, whatever the result of the run. Another server
// then removes everything, and a last sweep removes its directory.
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
		// A server on Nomad answers before it has read Nomad's state.
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
