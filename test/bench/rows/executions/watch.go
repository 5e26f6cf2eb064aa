package executions

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
	"github.com/rockpool/rockpool/test/bench/socket"
)

// crowds are the numbers of concurrent subscriptions.
var crowds = []int{1, 100, 1000}

// Watch returns the rows of how much subscribers read, and how late.
func Watch() []rows.Row {
	var all []rows.Row
	for _, n := range crowds {
		row := rows.Row{
			Name:  fmt.Sprintf("watch/%d", n),
			What:  fmt.Sprintf("MB/s that %d subscriptions receive in total, each on a socket of its own, while one program prints as fast as it can.", n),
			Floor: fmt.Sprintf("%d bare WebSockets, with messages of 32 KiB.", n),
			Unit:  measure.MBPerSecond, Per: "MB",
			Open: openWatch(n),
		}
		if n == 1 {
			row.Goals = []measure.Goal{{Of: "p50", AtLeast: 100}}
		}
		all = append(all, row)
	}
	for _, n := range crowds {
		row := rows.Row{
			Name:  fmt.Sprintf("lag/%d", n),
			What:  fmt.Sprintf("The delay of %d subscribers of a program that prints 1 MB/s in pieces of 10 kB: from before each write until they have read it.", n),
			Floor: fmt.Sprintf("%d bare WebSockets that receive the same pieces.", n),
			Unit:  measure.Milliseconds, Per: "second",
			Open: openLag(n),
		}
		if n == 1000 {
			row.Goals = []measure.Goal{{Of: "p99", AtMost: 100}}
		}
		all = append(all, row)
	}
	return all
}

// openWatch runs a program that prints lines. All watchers together read 400 MB; a single one reads
// 200 MB.
func openWatch(watchers int) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		s, runner, err := b.Claimed(ctx, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		const size = 32 << 10
		total := b.Ops(400e6)
		if watchers == 1 {
			total = b.Ops(200e6)
		}
		messages := max(1, total/watchers/size)
		row := func(ctx context.Context, r *measure.Round) error {
			// The program starts when its input ends, so that all subscribers are connected.
			program := fmt.Sprintf("read go; yes %s | head -c %d", bytes.Repeat([]byte("0123456789"), 12), messages*size)
			execution, err := fed(ctx, s, runner, "sh", "-c", program)
			if err != nil {
				return err
			}
			sockets, err := socket.DialAll(watchers, func() (*socket.Conn, error) {
				k, err := s.Dial(ctx)
				if err == nil {
					err = k.Subscribe(ctx, execution)
				}
				return k, err
			})
			defer socket.CloseAll(sockets)
			if err != nil {
				return err
			}
			return r.Rate(float64(watchers*messages*size)/1e6, func() error {
				if err := write(ctx, s, execution, "go\n"); err != nil {
					return err
				}
				return drainAll(ctx, sockets, func(ctx context.Context, k *socket.Conn) error { return k.DrainSize(ctx, messages*size) })
			})
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			return r.Rate(float64(watchers*messages*size)/1e6, func() error {
				// A floor's socket begins to send when it is opened.
				var group errgroup.Group
				group.SetLimit(watchers)
				for range watchers {
					group.Go(func() error {
						k, err := b.Floors.Dial(ctx, fmt.Sprintf("/socket?size=%d&messages=%d", size, messages))
						if err != nil {
							return err
						}
						defer k.Close()
						return k.DrainSize(ctx, messages*size)
					})
				}
				return group.Wait()
			})
		}
		return rows.Pair{Row: row, Floor: floor, Rounds: 5}, rows.Warm(ctx, row, floor)
	}
}

// pacing is a program that prints a megabyte per second, for as many seconds as its standard input
// says. Each piece begins with the time.
const pacing = `
import sys, time
seconds = float(sys.stdin.readline())
out = sys.stdout.buffer
begin = time.monotonic()
for i in range(int(seconds * 100)):
    time.sleep(max(0, begin + i * 0.01 - time.monotonic()))
    piece = b"at=%d;" % time.time_ns()
    out.write(piece + b"." * (10000 - len(piece)))
    out.flush()
`

// openLag prepares a row with this many subscriptions to the paced program.
func openLag(watchers int) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		s, runner, err := b.Claimed(ctx, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		seconds := b.Ops(5)
		row := func(ctx context.Context, r *measure.Round) error {
			execution, err := fed(ctx, s, runner, "python3", "-c", pacing)
			if err != nil {
				return err
			}
			sockets, err := socket.DialAll(watchers, func() (*socket.Conn, error) {
				k, err := s.Dial(ctx)
				if err == nil {
					err = k.Subscribe(ctx, execution)
				}
				return k, err
			})
			defer socket.CloseAll(sockets)
			if err != nil {
				return err
			}
			if err := lags(ctx, r, sockets, seconds, func() error { return write(ctx, s, execution, strconv.Itoa(seconds)+"\n") }); err != nil {
				return err
			}
			return s.Await(ctx, execution) // if python3 is missing, this reports it
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			path := fmt.Sprintf("/pace?readers=%d&seconds=%d", watchers, seconds)
			sockets, err := socket.DialAll(watchers, func() (*socket.Conn, error) { return b.Floors.Dial(ctx, path) })
			defer socket.CloseAll(sockets)
			if err != nil {
				return err
			}
			return lags(ctx, r, sockets, seconds, func() error { return nil })
		}
		return rows.Pair{Row: row, Floor: floor, Rounds: 3}, nil
	}
}

// lags adds the delay of each message: its time of arrival minus the time in it.
func lags(ctx context.Context, r *measure.Round, sockets []*socket.Conn, seconds int, begin func() error) error {
	var mu sync.Mutex
	_, err := r.Meter(float64(seconds), func() error {
		if err := begin(); err != nil {
			return err
		}
		return drainAll(ctx, sockets, func(ctx context.Context, k *socket.Conn) error {
			var own []float64
			err := k.Drain(ctx, func(message []byte) {
				if at, ok := printedAt(message); ok {
					own = append(own, float64(time.Since(at).Nanoseconds())/1e6)
				}
			})
			mu.Lock()
			defer mu.Unlock()
			r.Samples = append(r.Samples, own...)
			return err
		})
	})
	if err == nil && len(r.Samples) == 0 {
		err = fmt.Errorf("no message had a time: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// printedAt returns the first time in a message, of the piece that waited longest.
func printedAt(message []byte) (time.Time, bool) {
	_, after, found := bytes.Cut(message, []byte("at="))
	digits, _, whole := bytes.Cut(after[:min(len(after), 32)], []byte(";"))
	nanos, err := strconv.ParseInt(string(digits), 10, 64)
	return time.Unix(0, nanos), found && whole && err == nil
}

// fed starts a command that reads its input from write.
func fed(ctx context.Context, s *bed.Server, runner string, command ...string) (string, error) {
	return client.Start(ctx, s, client.StartExecutionInput{RunnerId: runner, Command: command, Stdin: new(true)})
}

// write sends a program its whole input, and ends it.
func write(ctx context.Context, s *bed.Server, execution, text string) error {
	_, err := client.WriteStdin(ctx, s, client.WriteStdinInput{ExecutionId: execution, Text: &text, Close: new(true)})
	return err
}

// drainAll drains all sockets concurrently.
func drainAll(ctx context.Context, sockets []*socket.Conn, drain func(context.Context, *socket.Conn) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, k := range sockets {
		group.Go(func() error { return drain(ctx, k) })
	}
	return group.Wait()
}
