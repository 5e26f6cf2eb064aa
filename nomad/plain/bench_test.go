package plain_test

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/nomad/plain"
)

// BenchmarkNomad measures, on each driver, what commands cost beside Nomad's own
// exec of the same, in turns: the time to the first output and to the exit, and
// how many of true there are in a second, 1 and 8 at once.
//
//	go test -run '^$' -bench Nomad -benchtime 50x ./nomad/plain
func BenchmarkNomad(b *testing.B) {
	for _, driver := range shared.Options.Drivers {
		b.Run(driver, func(b *testing.B) {
			bed := nomadBed(b, driver)
			var first, own, exit, ownExit []time.Duration
			lost := 0
			for b.Loop() {
				f, e := bareExec(b, bed.exec, "echo", "hi")
				own, ownExit = append(own, f), append(ownExit, e)
				f, e, ok := bed.measure("echo", "hi")
				if !ok {
					lost++
				}
				first, exit = append(first, f), append(exit, e)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(first), "ms-first")
			b.ReportMetric(median(own), "ms-first-bare")
			b.ReportMetric(median(first)/median(own), "x-first")
			b.ReportMetric(median(exit), "ms-exit")
			b.ReportMetric(median(ownExit), "ms-exit-bare")
			b.ReportMetric(float64(lost), "lost")
			for _, n := range []int{1, 8} {
				bare := perSecond(n, func() { bareExec(b, bed.exec, "true") })
				with := perSecond(n, func() { bed.measure("true") })
				suffix := map[int]string{1: "", 8: "-at-8"}[n]
				b.ReportMetric(with, "true/s"+suffix)
				b.ReportMetric(bare, "true/s-bare"+suffix)
				b.ReportMetric(with/bare, "x-true/s"+suffix)
			}
		})
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

func perSecond(n int, f func()) float64 {
	const each = 20
	began := time.Now()
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			for range each {
				f()
			}
		})
	}
	group.Wait()
	return float64(n*each) / time.Since(began).Seconds()
}

// bareExec runs a command by the exec alone.
func bareExec(b *testing.B, exec plain.Exec, argv ...string) (first, exit time.Duration) {
	began := time.Now()
	stdin, end := io.Pipe()
	defer end.Close()
	if argv[0] == "true" {
		end.Close()
	}
	_, err := exec.Exec(context.Background(), plain.Command{Argv: argv, Stdin: stdin, Stderr: io.Discard, Stdout: writerFunc(func(p []byte) (int, error) {
		if first == 0 {
			first = time.Since(began)
			end.Close()
		}
		return len(p), nil
	})})
	if err != nil {
		b.Log(err)
	}
	return first, time.Since(began)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// measure runs a command by the agent's protocol.
func (b *bed) measure(argv ...string) (first, exit time.Duration, ok bool) {
	began := time.Now()
	conn, err := b.runner.Dial(context.Background())
	if err != nil {
		return 0, 0, false
	}
	s, err := agent.StartExecution(context.Background(), conn, agent.Start{ID: fresh(), Argv: argv, Env: b.env})
	if err != nil {
		return 0, 0, false
	}
	defer s.Close()
	for {
		event, err := s.Next()
		switch {
		case err != nil:
			return first, time.Since(began), false
		case event.Kind == agent.KindOutput && first == 0:
			first = time.Since(began)
		case event.Kind == agent.KindExited:
			return first, time.Since(began), s.Settled() == nil && event.Exit.Code == 0 && (event.Exit.Output > 0) == (argv[0] == "echo")
		}
	}
}
