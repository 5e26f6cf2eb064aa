package ledger

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// A Program prints numbered records of 16 bytes in blocks, every fourth block on stderr. So each
// byte of its output says where it belongs. The program ends in a way that only it could have
// chosen.
type Program struct {
	Key    string // unique among programs
	blocks int    // endless: it never exits
	each   int    // records per block
	pause  time.Duration
	Ends   Ending // how it ends
	code   int    // with endsItself, 1 to 98: a made-up success would be 0
}

// An Ending is how a program ends.
type Ending int

// The endings.
const (
	endsItself   Ending = iota // it exits with its code
	endsBySignal               // it kills itself
	endsByLimit                // its time limit ends it
	EndsByCancel               // its client cancels it
	EndsByLeave                // its client releases the runner
	endings
)

func (e Ending) String() string {
	return [...]string{"an exit", "a signal of its own", "its time limit", "a cancellation", "a release"}[e]
}

// alreadyRan is the exit code of a program that was started a second time.
const alreadyRan = 99

// recordBytes is the length of a printed record with its line end. endless is a number of blocks
// that no program reaches.
const (
	recordBytes = 16
	endless     = 1 << 30
	timeLimit   = 2 // seconds, of a program that its limit ends
)

// script prints records until there are enough. It makes a directory with a unique name, which
// proves that it was started. The shell's own messages ("Terminated", for a child that it waits
// for) are discarded.
const script = `exec 3>&2 2>/dev/null
mkdir "/workspace/ran-$1" || exit 99
i=0
while [ $i -lt $2 ]; do
  if [ $((i % 4)) = 3 ]; then
    at=$((i / 4 * $3)); seq -f 1%014.0f $at $((at + $3 - 1)) >&3
  else
    at=$(((i - i / 4) * $3)); seq -f 0%014.0f $at $((at + $3 - 1))
  fi
  i=$((i + 1))
  sleep $4
done
[ $5 = 0 ] && kill -KILL $$
exit $5`

// NewProgram chooses a program that takes some seconds.
func NewProgram(random *rand.Rand, key string) Program {
	p := Program{Key: key, each: 1 + random.IntN(400), Ends: Ending(random.IntN(int(endings))), code: 1 + random.IntN(alreadyRan-1)}
	if random.IntN(2) == 0 { // half of them
		p.Ends = endsItself
	}
	p.pause = time.Duration(20+random.IntN(180)) * time.Millisecond
	p.blocks = 1 + int(time.Duration(random.IntN(6000))*time.Millisecond/p.pause)
	if p.Ends > endsBySignal {
		p.blocks = endless
	}
	return p
}

// Command returns the program's command.
func (p Program) Command() []string {
	code := p.code
	if p.Ends == endsBySignal {
		code = 0
	}
	return []string{"sh", "-c", script, "sh", p.Key, strconv.Itoa(p.blocks), strconv.Itoa(p.each),
		strconv.FormatFloat(p.pause.Seconds(), 'f', 3, 64), strconv.Itoa(code)}
}

// Limit returns the program's time limit in seconds; nil means the environment's.
func (p Program) Limit() *int {
	switch {
	case p.Ends == endsByLimit:
		return new(timeLimit)
	case p.blocks == endless:
		return new(0)
	default:
		return nil
	}
}

// total returns how many bytes an execution that exited has printed on each stream.
func (p Program) total() [streams]int64 {
	errs := p.blocks / 4
	return [streams]int64{int64(p.blocks-errs) * int64(p.each) * recordBytes, int64(errs) * int64(p.each) * recordBytes}
}

// least returns the shortest time until it exits.
func (p Program) least() time.Duration { return time.Duration(p.blocks) * p.pause }

// record returns the bytes of one record.
func record(stream int, number int64) string { return fmt.Sprintf("%d%014d\n", stream, number) }

// The streams, by index.
const (
	stdout = iota
	stderr
	streams
)
