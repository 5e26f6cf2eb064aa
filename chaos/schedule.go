package chaos

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
	faultKinds             // below: not drawn
	fillDisk
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
	default:
		return "fill the disk, kill the server, and free the disk"
	}
}

// A schedule is what a seed makes of a run: the same faults in the same order,
// with the same delays. What they meet is up to the machine.
type schedule struct {
	random *rand.Rand
	every  time.Duration
	deck   []fault
}

func newSchedule(seed uint64, every time.Duration) *schedule {
	return &schedule{random: rand.New(rand.NewPCG(seed, 0)), every: every}
}

// next draws from a deck that has every kind, and every moment, and is shuffled
// anew when it is used up.
func (s *schedule) next() fault {
	if len(s.deck) == 0 {
		for m := range moments {
			s.deck = append(s.deck, fault{kind: killServer, moment: m})
		}
		for kind := killRestore; kind < faultKinds; kind++ {
			s.deck = append(s.deck, fault{kind: kind})
		}
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
	f.choice = s.random.Uint64()
	return f
}
