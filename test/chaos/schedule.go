package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A fault is one blow, and everything about it that was chosen in advance.
type fault struct {
	kind   faultKind
	moment moment        // of a kill
	wait   time.Duration // since the fault before
	after  time.Duration // after the beginning of the moment; of a restore: after the server's start
	down   time.Duration // without a server
	choice uint64        // whom it hits
}

type faultKind int

const (
	killServer   faultKind = iota
	killRestore            // and the next server too, while it takes over
	stopServer             // as an upgrade does, under load
	stopRestore            // kill the server, and ask the next one to end while it waits for a frozen agent
	killHeld               // the agent of a runner that somebody holds
	killIdle               // of one that nobody holds
	killStarting           // of one that is being made
	destroyHeld            // all processes and groups of a held runner
	destroyDown            // the same, while no server is there to see it
	faultKinds             // of runners on this machine; below: not drawn there
	fillDisk
	stopAllocation // of a held runner, on Nomad
	killTask       // that is its agent
	killIdleTask
	restartTask
	stopJob
	purgeJob
	purgeIdle
	purgeDown // the jobs of a held and an idle runner, while no server is there to see it
	drainNode
	killClient // Nomad's, on which the tasks are
	killNomad  // its server
	freezeClient
	freezeNomad
	nomadKinds
)

func (f fault) String() string {
	switch f.kind {
	case killServer:
		return fmt.Sprintf("kill the server, %s after the beginning %s", f.after, f.moment)
	case killRestore:
		return fmt.Sprintf("kill the server at any time, and the next one %s after its start", f.after)
	case stopRestore:
		return fmt.Sprintf("kill the server while many wait, destroy two sandboxes, freeze an agent, and stop the next server %s after its start", f.after)
	case stopServer:
		return fmt.Sprintf("stop the server, %s after a burst of wishes", f.after)
	case killHeld:
		return "kill the agent of a held runner"
	case killIdle:
		return "kill the agent of an idle runner"
	case killStarting:
		return "kill the agent of a runner that starts"
	case destroyHeld:
		return "destroy a held sandbox"
	case destroyDown:
		return "kill the server, and destroy a held and an idle sandbox before the next one"
	case fillDisk:
		return "fill the disk, kill the server, and free the disk"
	case purgeDown:
		return "kill the server, and purge the jobs of a held and an idle runner before the next one"
	case drainNode:
		return fmt.Sprintf("drain Nomad's node, and make it eligible %s later", f.down)
	case killClient, killNomad:
		return fmt.Sprintf("kill %s, and start it again %s later", f.part(), f.down)
	case freezeClient, freezeNomad:
		return fmt.Sprintf("freeze %s for %s", f.part(), f.down)
	default:
		return map[faultKind]string{
			stopAllocation: "stop the allocation of a held runner", killTask: "kill the task of a held runner", killIdleTask: "kill the task of an idle runner",
			restartTask: "restart the task of a held runner", stopJob: "stop the job of a held runner", purgeJob: "purge the job of a held runner", purgeIdle: "purge the job of an idle runner",
		}[f.kind]
	}
}

// part is the part of Nomad that a fault hits.
func (f fault) part() string {
	if f.kind == killClient || f.kind == freezeClient {
		return "Nomad's client"
	}
	return "Nomad's server"
}

// A schedule is what a seed makes of a run: the same faults in the same order,
// with the same delays. What they meet is up to the machine.
type schedule struct {
	random *rand.Rand
	every  time.Duration
	round  []fault
	deck   []fault
}

func newSchedule(seed uint64, every time.Duration, round []fault) *schedule {
	return &schedule{random: rand.New(rand.NewPCG(seed, 0)), every: every, round: round}
}

// hereFaults are what happens in a round to a server whose runners are on this
// machine: every kind of fault, and a kill at every moment.
func hereFaults() []fault {
	var all []fault
	for m := range moments {
		all = append(all, fault{kind: killServer, moment: m})
	}
	for kind := killRestore; kind < faultKinds; kind++ {
		all = append(all, fault{kind: kind})
	}
	return all
}

// nomadFaults are what happens to one whose runners are on Nomad.
func nomadFaults() []fault {
	var all []fault
	for m := range moments {
		if m != atMaking { // nobody sees when Nomad does
			all = append(all, fault{kind: killServer, moment: m})
		}
	}
	all = append(all, fault{kind: killRestore}, fault{kind: stopServer})
	for kind := stopAllocation; kind < nomadKinds; kind++ {
		all = append(all, fault{kind: kind})
	}
	return all
}

// next draws from a deck that has all of a round, and is shuffled anew when it
// is used up.
func (s *schedule) next() fault {
	if len(s.deck) == 0 {
		s.deck = append(s.deck, s.round...)
		s.random.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
	}
	f := s.deck[0]
	s.deck = s.deck[1:]
	return s.details(f)
}

func (s *schedule) details(f fault) fault {
	least, within := time.Duration(0), 40*time.Millisecond
	switch {
	case f.kind == stopRestore:
		least, within = 150*time.Millisecond, 300*time.Millisecond // it waits for 5 s
	case f.kind == killRestore: // a start takes about as long
		within = 150 * time.Millisecond
	case f.kind == stopServer: // a line is short
		within = 15 * time.Millisecond
	case f.moment == anyMoment || f.moment == atUpload:
		within = 150 * time.Millisecond
	case f.kind == killServer: // what these begin takes little more
		within = 1500 * time.Microsecond
	}
	f.wait = s.every/2 + time.Duration(s.random.Int64N(int64(s.every)))
	f.after = least + time.Duration(s.random.Int64N(int64(within))).Round(10*time.Microsecond)
	if s.random.IntN(2) == 0 {
		f.down = time.Duration(s.random.IntN(700)) * time.Millisecond
	}
	if f.kind >= drainNode && f.kind < nomadKinds {
		f.down = 500*time.Millisecond + time.Duration(s.random.IntN(2500))*time.Millisecond
	}
	f.choice = s.random.Uint64()
	return f
}
