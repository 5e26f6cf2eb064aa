package plain

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killWithin   = 30 * time.Second // for a kill to reach the runner
	signalWithin = 10 * time.Second // for a signal
	lookAgain    = 2 * time.Second  // after a kill, for its execution to end
	mostSilent   = 3                // times that it may not have
)

// Kill is of [serve.Process].
func (p *process) Kill(grace time.Duration) {
	if p.isOver() && !p.status.Lost {
		return // the script has swept before it said so
	}
	ctx, cancel := context.WithTimeout(p.r.ctx, grace+killWithin)
	defer cancel()
	if grace > 0 && !p.isOver() {
		signals := []unix.Signal{unix.SIGTERM, unix.SIGCONT}
		if p.terminal {
			// A hang-up: interactive shells ignore SIGTERM.
			signals = []unix.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGCONT}
		}
		end := time.NewTimer(grace)
		defer end.Stop()
		p.r.running.Go(func() { p.signal("all", signals...) })
		select {
		case <-p.over:
		case <-end.C:
		}
	}
	switch {
	case !p.isOver():
		if err := p.tell(ctx, "kill"); err != nil {
			p.lose(err) // serve then calls again
			return
		}
		p.watching.Do(func() { p.r.running.Go(p.await) })
	case p.status.Lost:
		p.killed.Do(func() { p.finally(ctx) })
	}
}

// finally ends the script, too, of an execution that is lost.
func (p *process) finally(ctx context.Context) {
	if err := p.tell(ctx, "end"); err != nil {
		p.r.config.Report(fmt.Errorf("an execution may run on: %w", err))
	}
}

// await looks whether an execution ends after a kill: the kill can have come
// between two steps of a start, and the script can be gone.
func (p *process) await() {
	silent, before := 0, p.written.Load()
	for silent < mostSilent {
		timer := time.NewTimer(lookAgain)
		select {
		case <-p.over:
			timer.Stop()
			return
		case <-timer.C:
		}
		if now := p.written.Load(); now != before || p.busy.Load() > 0 {
			before = now // its output is still on its way
			continue
		}
		silent++
		ctx, cancel := context.WithTimeout(p.r.ctx, lookAgain)
		_ = p.tell(ctx, "kill")
		cancel()
	}
	p.lose(errors.New("its end didn't come"))
}

// tell runs kill.sh, until it has done its work or ctx ends. An order that must be
// carried out at most once isn't sent again once it may have arrived.
func (p *process) tell(ctx context.Context, args ...string) error {
	var failure error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		told := values(p.mark, p.wrapper, p.session, p.group, p.fifo)
		_, words, err := p.r.call(ctx, p.r.killKind, 0, told, args...)
		switch {
		case err == nil && len(words) == 2 && words[0] == "ended" && words[1] == "0":
			return nil
		case err == nil:
			err = fmt.Errorf("some processes can't be ended: %v", words)
		}
		if failure == nil || ctx.Err() == nil {
			failure = err
		}
		if errors.Is(err, errBegun) || !sleep(ctx, pause) {
			return fmt.Errorf("%s: %w", args[0], failure)
		}
	}
}

// Signal is of [serve.Process].
func (p *process) Signal(name string) bool {
	signal := unix.SignalNum(name)
	if signal == 0 {
		return false
	}
	p.r.running.Go(func() { p.signal("groups", signal) })
	return true
}

// signal sends signals to "all" processes, or to the "groups" of the command
// and in the terminal's foreground. Each is sent at most once: an exec that breaks
// after its script was told to send them is reported, and isn't repeated. One that
// can't be sent is as good as one that came too late.
func (p *process) signal(whom string, signals ...unix.Signal) {
	p.signalling.Lock()
	defer p.signalling.Unlock()
	ctx, cancel := context.WithTimeout(p.r.ctx, signalWithin)
	defer cancel()
	args := []string{whom}
	for _, s := range signals {
		args = append(args, strconv.Itoa(int(s)))
	}
	if err := p.tell(ctx, args...); err != nil && !p.isOver() {
		p.r.config.Report(fmt.Errorf("signal an execution: %w", err))
	}
}
