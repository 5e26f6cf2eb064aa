// Package schedule derives from a seed which faults strike, in which order and with which delays.
package schedule

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rockpool/rockpool/test/chaos/moment"
)

// A Fault is one fault, with all its random choices.
type Fault struct {
	Kind   Kind
	Moment moment.Moment // of a kill
	Wait   time.Duration // since the previous fault
	After  time.Duration // after the moment's beginning; with a restore: after the server's start
	Down   time.Duration // time without a server
	Choice uint64        // selects the victim
}

// A Kind is the effect of a fault.
type Kind int

// The kinds.
const (
	KillServer   Kind = iota
	KillRestore       // and the next server too, while it adopts runners
	StopServer        // as an upgrade does, under load
	StopRestore       // kill the server, and stop the next one while it waits for a frozen agent
	KillHeld          // the agent of a claimed runner
	KillIdle          // of an unclaimed one
	KillStarting      // of one that is being made
	DestroyHeld       // all processes and cgroups of a claimed runner
	DestroyDown       // the same, while no server runs
	hereKinds         // of runners on this machine; the kinds below aren't drawn there
	FillDisk
	StopAllocation // of a claimed runner, on Nomad
	KillTask       // the task that is its agent
	KillIdleTask
	RestartTask
	StopJob
	PurgeJob
	PurgeIdle
	PurgeDown // the jobs of a claimed and an idle runner, while no server runs
	DrainNode
	KillClient // Nomad's client, which runs the tasks
	KillNomad  // Nomad's server
	FreezeClient
	FreezeNomad
	nomadKinds
	KillDocker   // the daemon of both nodes; all containers end when it restarts
	KillDatabase // the database of several servers
	FreezeDatabase
)

func (f Fault) String() string {
	switch f.Kind {
	case KillServer:
		return fmt.Sprintf("kill the server, %s after the beginning %s", f.After, f.Moment)
	case KillRestore:
		return fmt.Sprintf("kill the server at any time, and the next one %s after its start", f.After)
	case StopRestore:
		return fmt.Sprintf("kill the server while many wait, destroy two sandboxes, freeze an agent, and stop the next server %s after its start", f.After)
	case StopServer:
		return fmt.Sprintf("stop the server, %s after a burst of wishes", f.After)
	case KillHeld:
		return "kill the agent of a held runner"
	case KillIdle:
		return "kill the agent of an idle runner"
	case KillStarting:
		return "kill the agent of a runner that starts"
	case DestroyHeld:
		return "destroy a held sandbox"
	case DestroyDown:
		return "kill the server, and destroy a held and an idle sandbox before the next one"
	case FillDisk:
		return "fill the disk, kill the server, and free the disk"
	case PurgeDown:
		return "kill the server, and purge the jobs of a held and an idle runner before the next one"
	case DrainNode:
		return fmt.Sprintf("drain Nomad's node, and make it eligible %s later", f.Down)
	case KillDocker:
		return fmt.Sprintf("kill Docker, and start it again %s later", f.Down)
	case KillDatabase:
		return fmt.Sprintf("kill the database, and start it again %s later", f.Down)
	case FreezeDatabase:
		return fmt.Sprintf("freeze the database for %s", f.Down)
	case KillClient, KillNomad:
		return fmt.Sprintf("kill %s, and start it again %s later", f.Part(), f.Down)
	case FreezeClient, FreezeNomad:
		return fmt.Sprintf("freeze %s for %s", f.Part(), f.Down)
	default:
		return map[Kind]string{
			StopAllocation: "stop the allocation of a held runner", KillTask: "kill the task of a held runner", KillIdleTask: "kill the task of an idle runner",
			RestartTask: "restart the task of a held runner", StopJob: "stop the job of a held runner", PurgeJob: "purge the job of a held runner", PurgeIdle: "purge the job of an idle runner",
		}[f.Kind]
	}
}

// Part returns the part of Nomad that a fault hits.
func (f Fault) Part() string {
	if f.Kind == KillClient || f.Kind == FreezeClient {
		return "Nomad's client"
	}
	return "Nomad's server"
}

// A Schedule has the faults that a seed selects: the same faults in the same order, with the same
// delays. Their effect depends on the machine.
type Schedule struct {
	random *rand.Rand
	every  time.Duration
	round  []Fault
	deck   []Fault
}

// New returns the schedule of a seed, of rounds of faults.
func New(seed uint64, every time.Duration, round []Fault) *Schedule {
	return &Schedule{random: rand.New(rand.NewPCG(seed, 0)), every: every, round: round}
}

// Here returns a round for servers with runners on this machine: every kind of fault, and a kill at
// every moment.
func Here() []Fault {
	var all []Fault
	for m := range moment.Count {
		all = append(all, Fault{Kind: KillServer, Moment: m})
	}
	for kind := KillRestore; kind < hereKinds; kind++ {
		all = append(all, Fault{Kind: kind})
	}
	return all
}

// OnNomad returns a round for servers with runners on Nomad.
func OnNomad() []Fault {
	var all []Fault
	for m := range moment.Count {
		if m != moment.Making { // the making of a sandbox on Nomad is invisible
			all = append(all, Fault{Kind: KillServer, Moment: m})
		}
	}
	all = append(all, Fault{Kind: KillRestore}, Fault{Kind: StopServer})
	for kind := StopAllocation; kind < nomadKinds; kind++ {
		all = append(all, Fault{Kind: kind})
	}
	return all
}

// Several returns a round for several servers with a shared database and runners on Nomad.
func Several() []Fault {
	return append(OnNomad(), Fault{Kind: KillDocker}, Fault{Kind: KillDatabase}, Fault{Kind: FreezeDatabase})
}

// Next draws a fault from a deck with all faults of a round. It shuffles the deck again when it is
// used up.
func (s *Schedule) Next() Fault {
	if len(s.deck) == 0 {
		s.deck = append(s.deck, s.round...)
		s.random.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
	}
	f := s.deck[0]
	s.deck = s.deck[1:]
	return s.details(f)
}

// details draws a fault's times and its choice of a victim. The times are about as long as what the
// fault should hit.
func (s *Schedule) details(f Fault) Fault {
	least, within := time.Duration(0), 40*time.Millisecond
	switch {
	case f.Kind == StopRestore:
		least, within = 150*time.Millisecond, 300*time.Millisecond // the server waits 5 s for the agent
	case f.Kind == KillRestore: // a start takes about as long
		within = 150 * time.Millisecond
	case f.Kind == StopServer: // a log line is quickly written
		within = 15 * time.Millisecond
	case f.Moment == moment.Any || f.Moment == moment.Upload:
		within = 150 * time.Millisecond
	case f.Kind == KillServer: // their requests take little longer
		within = 1500 * time.Microsecond
	}
	f.Wait = s.every/2 + time.Duration(s.random.Int64N(int64(s.every)))
	f.After = least + time.Duration(s.random.Int64N(int64(within))).Round(10*time.Microsecond)
	if s.random.IntN(2) == 0 {
		f.Down = time.Duration(s.random.IntN(700)) * time.Millisecond
	}
	if f.Kind >= DrainNode {
		f.Down = 500*time.Millisecond + time.Duration(s.random.IntN(2500))*time.Millisecond
	}
	if f.Kind >= KillDatabase { // longer than an agent may be late
		f.Down *= 4
	}
	f.Choice = s.random.Uint64()
	return f
}
