// Package process starts commands, feeds and measures them, and ends each together with everything
// that it started. It guarantees that user code gets none of the agent's privileges, and that no
// process of an execution is left behind. All output printed before the end of an execution can be read.
package process

import (
	"io"
	"time"

	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/serve"
)

// A process is one command and everything that it started. It implements serve.Process.
type process struct {
	*streams
	starter  *Starter
	group    *groups.Group    // nil means the agent's own group
	counters *groups.Counters // of the whole runner, or nil; only if commands have no groups
	mark     uint32
	pid      int // of the command itself

	began         time.Time
	measured      measurement // when Excessive measured last; only the watch uses it
	refusedBefore int64       // forks that the runner's own kernel had refused before the start
	crowded       bool        // another command ran at the same time; guarded by the reaper's mutex
	exact         bool        // its group enforces its limit of processes
	heldUp        bool        // its start took so long that it was killed
	warm          bool        // it was started by the zygote
	cold          string      // why it wasn't; "" also if the runner has no zygote

	exited chan struct{} // closed by the reaper when status is set
	status serve.Status
	usage  serve.Usage // guarded by the reaper's mutex
}

// StartedWarm implements serve.Process.
func (p *process) StartedWarm() (warm bool, cold string) { return p.warm, p.cold }

func (p *process) Pipes() (stdin io.WriteCloser, stdout, stderr io.Reader) {
	return p.stdin, p.stdout, p.stderr
}

func (p *process) Wait() serve.Status {
	<-p.exited
	return p.status
}

func (p *process) Close() serve.Usage {
	p.starter.reaper.reap() // include the processes that were killed last
	p.streams.close()
	usage := p.starter.reaper.forget(p)
	switch {
	case p.alone():
		usage.PerCommand = true
		resident := usage.PeakMemory
		p.group.End(&usage)
		if p.warm { // the zygote's group was charged for the pages that it shares
			usage.PeakMemory = max(usage.PeakMemory, resident)
		}
	case p.ownKernel():
		usage.PerCommand, usage.Refused = true, p.refusedInside()
	case p.counters != nil && p.wasCrowded():
		var shared serve.Usage
		p.counters.End(&shared) // memory and processes can't be attributed to one command
		usage.Shared, usage.OOMKills, usage.Refused = true, shared.OOMKills, shared.Refused
	case p.counters != nil:
		usage.PerCommand = true
		p.counters.End(&usage)
	}
	p.leaveGroup()
	// No process has the mark any longer, so another execution may get it.
	p.starter.marks.free(p.mark)
	if r := p.starter.reaper; p.starter.OwnIPC {
		r.unreaped(func() {
			if len(r.marked) == 0 { // no command runs
				groups.RemoveSegments()
			}
		})
	}
	return usage
}

func (p *process) alone() bool { return p.group != nil && p.group.PerCommand() }

func (p *process) leaveGroup() {
	if p.group != nil {
		p.starter.Groups.Give(p.group)
	}
}

// ownKernel reports whether all counts of the runner's own kernel belong to p, because no other
// command ran.
func (p *process) ownKernel() bool {
	return p.starter.Guest != nil && !p.wasCrowded()
}

func (p *process) wasCrowded() bool {
	p.starter.reaper.mu.Lock()
	defer p.starter.reaper.mu.Unlock()
	return p.crowded
}

// refusedInside returns how many forks the runner's own kernel refused since p's start.
func (p *process) refusedInside() int64 { return p.starter.Guest.Refused() - p.refusedBefore }
