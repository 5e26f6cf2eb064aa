package feed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/runtime/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A program is an execution whose output is pieces. A cursor is the number of pieces before it.
type program struct {
	mu      sync.Mutex
	pieces  [][]byte
	changed chan struct{}
	over    bool
	ended   chan struct{}
	opened  int
}

func newProgram() *program {
	return &program{changed: make(chan struct{}), ended: make(chan struct{})}
}

func (p *program) print(piece []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pieces = append(p.pieces, piece)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *program) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	close(p.changed)
	close(p.ended)
}

func (p *program) open(after string) (Source, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	at, _ := strconv.Atoi(after)
	return &reader{program: p, at: at}, nil
}

type reader struct {
	program *program
	at      int
	until   int
	done    bool
}

func (r *reader) TryNext() (events.Event, error) {
	event, _, err := r.try()
	return event, err
}

func (r *reader) try() (events.Event, <-chan struct{}, error) {
	p := r.program
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.done {
		return events.Event{}, nil, io.EOF
	}
	event := events.Event{Kind: events.Output}
	for r.at < len(p.pieces) && len(event.Data)+len(p.pieces[r.at]) <= events.MaxBytes {
		event.Data = append(event.Data, p.pieces[r.at]...)
		if r.at++; r.at == r.until {
			break
		}
	}
	event.Cursor = strconv.Itoa(r.at)
	switch {
	case event.Data != nil:
		return event, nil, nil
	case p.over:
		r.done = true
		event.Kind = events.Finished
		return event, nil, nil
	}
	return events.Event{}, p.changed, events.ErrWait
}

func (r *reader) Next(ctx context.Context) (events.Event, error) {
	for {
		event, changed, err := r.try()
		if !errors.Is(err, events.ErrWait) {
			return event, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return events.Event{}, ctx.Err()
		}
	}
}

func (r *reader) Until(cursor string)    { r.until, _ = strconv.Atoi(cursor) }
func (r *reader) Ended() <-chan struct{} { return r.program.ended }
func (r *reader) Close() error           { return nil }

func encode(e events.Event) []byte { return append([]byte(nil), e.Data...) }

// read reads to the end. It fails unless there is exactly one end.
func read(t *testing.T, w *Watcher, slow func()) []byte {
	t.Helper()
	var got []byte
	for {
		item, err := w.Next(t.Context())
		if err != nil {
			t.Error(err)
			return nil
		}
		if item.Event.Kind == events.Finished {
			if _, err := w.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("after the end comes %v, want %v", err, io.EOF)
			}
			return got
		}
		got = append(got, item.Encoded...)
		slow()
	}
}

// Each watcher gets every byte once, in order: watchers that start early or late, resume anywhere,
// and read fast, slowly or with pauses.
func TestEveryWatcherGetsEveryByteOnce(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			p := newProgram()
			var all []byte
			starts := []int{0}
			pieces := make([][]byte, 400)
			for i := range pieces {
				pieces[i] = bytes.Repeat([]byte(strconv.Itoa(i)+" "), 1+random.IntN(1+6000*random.IntN(2)))
				pieces[i] = pieces[i][:min(len(pieces[i]), events.MaxBytes)]
				all = append(all, pieces[i]...)
				starts = append(starts, len(all))
			}
			var feeds Feeds
			var group sync.WaitGroup
			for i := range 20 {
				delay := time.Duration(random.IntN(400)) * time.Millisecond
				pace := time.Duration(random.IntN(3)*random.IntN(20)) * time.Millisecond
				group.Go(func() {
					time.Sleep(delay)
					p.mu.Lock()
					after := i % 3 * len(p.pieces) / 3
					p.mu.Unlock()
					cursor := ""
					if after > 0 {
						cursor = strconv.Itoa(after)
					}
					w, err := feeds.Watch(Key{Execution: "x"}, cursor, p.open, encode)
					if err != nil {
						t.Error(err)
						return
					}
					defer w.Close()
					if got := read(t, w, func() { time.Sleep(pace) }); !bytes.Equal(got, all[starts[after]:]) {
						t.Errorf("seed %d: a watcher from %d got %d bytes of %d", seed, after, len(got), len(all)-starts[after])
					}
				})
			}
			for _, piece := range pieces {
				p.print(piece)
				if random.IntN(4) > 0 {
					time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
				}
			}
			p.end()
			group.Wait()
			if len(feeds.live) != 0 {
				t.Error("a feed is left")
			}
		})
	}
}

// The first piece after a silence is sent immediately, later ones together. The end isn't delayed.
func TestSmallPiecesAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		var feeds Feeds
		w, _ := feeds.Watch(Key{}, "", p.open, encode)
		defer w.Close()
		next := make(chan Item)
		go func() {
			defer close(next)
			for {
				item, err := w.Next(t.Context())
				if err != nil {
					return
				}
				next <- item
			}
		}()
		synctest.Wait()
		began := time.Now()
		p.print([]byte("1"))
		if item := <-next; string(item.Encoded) != "1" || time.Since(began) != 0 {
			t.Errorf("%q after %v", item.Encoded, time.Since(began))
		}
		p.print([]byte("2"))
		time.Sleep(tick / 2)
		p.print([]byte("3"))
		if item := <-next; string(item.Encoded) != "23" || time.Since(began) > tick+tickMember {
			t.Errorf("%q after %v", item.Encoded, time.Since(began))
		}
		began = time.Now()
		p.end()
		if item := <-next; item.Event.Kind != events.Finished || time.Since(began) != 0 {
			t.Errorf("%v after %v", item.Event.Kind, time.Since(began))
		}
		<-next
	})
}

// Live watchers share the encoded output.
func TestOutputIsEncodedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		var feeds Feeds
		var mu sync.Mutex
		encoded := 0
		count := func(e events.Event) []byte {
			mu.Lock()
			defer mu.Unlock()
			encoded++
			return encode(e)
		}
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				w, _ := feeds.Watch(Key{}, "", p.open, count)
				defer w.Close()
				read(t, w, func() {})
			})
		}
		synctest.Wait()
		for range 50 {
			p.print([]byte("x"))
			time.Sleep(time.Second)
		}
		p.end()
		group.Wait()
		if encoded != 50 {
			t.Errorf("50 events for 100 watchers were encoded %d times, want 50", encoded)
		}
	})
}

// A member that doesn't read holds one event. The others continue. It reads what it missed from the
// log.
func TestSlowMembersHoldOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		var feeds Feeds
		slow, _ := feeds.Watch(Key{}, "", p.open, encode)
		defer slow.Close()
		p.print([]byte("x"))
		if _, err := slow.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() {
			for range 4 * keep / events.MaxBytes {
				p.print(make([]byte, events.MaxBytes))
			}
			p.end()
		}()
		fast, _ := feeds.Watch(Key{}, "1", p.open, encode)
		if got := read(t, fast, func() {}); len(got) != 4*keep {
			t.Errorf("%d bytes", len(got))
		}
		fast.Close()
		if f := slow.feed; f != nil && f.bytes > keep {
			t.Errorf("%d bytes are kept", f.bytes)
		}
		if got := read(t, slow, func() {}); len(got) != 4*keep {
			t.Errorf("the slow one got %d bytes", len(got))
		}
	})
}

// 256 feeds together keep at most 64 MiB and the newest event of each, also if some kept much
// before the others started.
func TestFeedsShareOneLimitOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feeds Feeds
		p := newProgram()
		for i := range 4 * all / keep {
			w, err := feeds.Watch(Key{Selection: strconv.Itoa(i)}, "", p.open, encode)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			go func() {
				for {
					if _, err := w.Next(t.Context()); err != nil {
						return
					}
				}
			}()
			synctest.Wait() // it is at the end
			p.print(make([]byte, events.MaxBytes))
			synctest.Wait()
			kept := 0
			for _, f := range feeds.live {
				f.mu.Lock()
				kept += f.bytes
				f.mu.Unlock()
			}
			if len(feeds.live) != i+1 || kept > all+len(feeds.live)*extra || int64(kept) != feeds.bytes.Load() {
				t.Fatalf("%d feeds keep %d bytes, and count %d", len(feeds.live), kept, feeds.bytes.Load())
			}
		}
		p.end()
		synctest.Wait()
	})
}

// Sizes of a terminal have no output that counts, and there can be many.
func TestEventsWithoutOutputCount(t *testing.T) {
	start := &node{ready: make(chan struct{})}
	f := &feed{feeds: new(Feeds), tail: start, oldest: start, nodes: map[string]*node{"": start}, bytes: start.cost()}
	for i := range 100_000 {
		size := events.Event{Kind: events.Resized, Cursor: strconv.Itoa(i)}
		f.append(&node{item: Item{Event: size}, ready: make(chan struct{})})
	}
	if len(f.nodes) > keep/extra || f.bytes > keep || f.nodes["99999"] != f.tail {
		t.Errorf("%d events are kept, and count as %d bytes", len(f.nodes), f.bytes)
	}
}
